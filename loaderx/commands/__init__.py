"""Commands of the command line, one file each; `loaderx.cli` imports them by the names below.

The file of a command has `add(commands)`, which adds its parser and names the function that runs it by
`set_defaults(run=...)`. That function receives the parsed arguments and returns the exit status. `loaderx.cli.main`
prints its exceptions as one line. Imports beyond the standard library are inside of functions: every call of the
command line imports all of these files.
"""

# In the order of `loaderx --help`. A new command needs its name here, and nothing elsewhere.
COMMANDS = ("demo", "inspect", "convert", "bench", "preview", "warm")
