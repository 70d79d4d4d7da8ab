"""How tool calls stand in a model's text: one class per file, found by the registry under the kind `format`."""
