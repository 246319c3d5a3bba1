"""Print a script that completes rayrank's commands and their options in bash or zsh.

bash: rayrank completion bash > ~/.local/share/bash-completion/completions/rayrank
zsh:  rayrank completion zsh > ~/.rayrank-completion, and `source ~/.rayrank-completion` at the end of ~/.zshrc
"""

import argparse
import contextlib
import io
import re
import sys

from rayrank.command import COMMANDS, Command, run

SCRIPT = """_rayrank() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} known=
  if [ "$COMP_CWORD" -eq 1 ]; then known="{commands}"
  elif [[ $word == -* ]]; then
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$known" -- "$word"))
}}
complete -o default -F _rayrank rayrank
"""
"""Without a match, such as for the value of an option, the shell completes names of files."""
OF_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def options_of(command: Command) -> list[str]:
    """Return the options that the help of a command lists."""
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        run(command, ["--help"])
    usage = text.getvalue().split("\n\noptions:")[-1]
    return sorted(set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", usage, re.MULTILINE)))


def script(shell: str) -> str:
    """Return the script for a shell."""
    names = [command.name for command in COMMANDS]
    others = [command for command in COMMANDS if command.name != "completion"]
    cases = [f'      {command.name}) known="{" ".join(options_of(command))}" ;;' for command in others]
    written = SCRIPT.format(commands=" ".join(names), cases="\n".join(cases))
    return OF_ZSH + written if shell == "zsh" else written


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("shell", choices=("bash", "zsh"))
    sys.stdout.write(script(options.parse_args().shell))
