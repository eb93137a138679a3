"""The commands of the command line, a file each; `loaderx.cli` asks for them by the names below.

The file of a command has `add(commands)`, which adds its parser and names the function that runs it by
`set_defaults(run=...)`. That function takes the parsed arguments and returns the exit status. It may raise what
`loaderx.cli.main` makes one line of. Imports beyond the standard library stand inside of functions: every call of the
command line imports all of these files.
"""

# In the order in which `loaderx --help` shows them. A new command needs its name here, and nothing elsewhere.
COMMANDS = ("demo", "inspect", "convert", "bench", "preview", "warm")
