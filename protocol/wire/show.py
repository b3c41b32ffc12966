"""Print the generated codec of an API: `python -m tidelog.protocol.wire.show list_offsets 7`."""

import sys

from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.compiler import reader_source, writer_source
from tidelog.protocol.wire.source import snake_case

__all__ = ["codec_source", "main"]


def codec_source(api: Api, version: int) -> str:
    """Give the source of the four functions of a version: the broker's side first, then the client's."""
    flexible = api.is_flexible(version)
    return "\n\n".join(
        (
            reader_source(api.request, version, flexible),
            writer_source(api.response, version, flexible),
            writer_source(api.request, version, flexible),
            reader_source(api.response, version, flexible),
        )
    )


def main(arguments: list[str]) -> int:
    """Print the codec that the arguments name; give the exit status."""
    by_name = {snake_case(api.name): api for api in APIS.values()}
    if len(arguments) != 2 or arguments[0] not in by_name or not arguments[1].isdecimal():
        print(f"usage: show API VERSION, where API is one of: {', '.join(sorted(by_name))}", file=sys.stderr)
        return 2
    api, version = by_name[arguments[0]], int(arguments[1])
    if not api.supports(version):
        print(f"{arguments[0]} has versions {api.min_version} to {api.max_version}", file=sys.stderr)
        return 2
    print(codec_source(api, version), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
