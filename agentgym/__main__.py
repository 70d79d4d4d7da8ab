"""`python -m agentgym`, which is also how torchrun starts it: torchrun --nproc-per-node 8 -m agentgym run …"""

from .cli import main

main()
