"""Where the roles of a run live: in this process, in its children, or as Ray actors (kind `cluster`)."""
