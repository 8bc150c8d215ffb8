"""`python -m emulated_cuda build`, once; then `python -m emulated_cuda run COMMAND`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from emulated_cuda.building import build
from emulated_cuda.layout import HERE, Layout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m emulated_cuda", description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=HERE / "build",
        help="where the build lies (default: %(default)s)",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    building = actions.add_parser("build", help="build the emulated device")
    building.add_argument(
        "--environment",
        type=Path,
        help="a virtual environment with sardonyx and its test extra, which gets CuPy; "
        "by default a new one is made in the folder",
    )
    running = actions.add_parser("run", help="run a command with the emulated device")
    running.add_argument("--cudnn", action="store_true", help="with cuDNN's Python frontend")
    running.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()

    layout = Layout(arguments.folder.resolve())
    if arguments.action == "build":
        build(layout, arguments.environment)
    elif not arguments.command:
        running.error("name a command, such as: pytest -m gpu")
    else:
        run(layout, arguments.command, with_cudnn=arguments.cudnn)


def run(layout: Layout, command: list[str], *, with_cudnn: bool) -> None:
    if not layout.is_complete():
        raise SystemExit(
            f"There is no emulated device in {layout.folder}; run: python -m emulated_cuda build"
        )
    variables = layout.variables(os.environ, with_cudnn=with_cudnn)
    os.execvpe(command[0], command, variables)


if __name__ == "__main__":
    main()
