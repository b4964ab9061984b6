"""``lakelog completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

import typer

from lakelog_cli import options, output


class CompletionRow(TypedDict):
    """A script for a shell."""

    shell: str
    script: str


@output.prints(CompletionRow)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")],
    as_json: options.AsJson = False,
) -> None:
    """Print a script that completes commands and options in bash, zsh or fish.

    bash: lakelog completion bash > ~/.local/share/bash-completion/completions/lakelog

    zsh: lakelog completion zsh > "${fpath[1]}/_lakelog"

    fish: lakelog completion fish > ~/.config/fish/completions/lakelog.fish
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(
        prog_name="lakelog", complete_var="_LAKELOG_COMPLETE", shell=shell
    )
    output.write_result({"shell": shell, "script": script}, script.splitlines(), as_json=as_json)
