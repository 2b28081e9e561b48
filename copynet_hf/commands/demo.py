"""`copynet-hf demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..arguments import BACKEND_HELP, COPIED_ONLY_HELP, TRUST_HELP, Arguments, Command, argument, between


@dataclass
class DemoArguments(Arguments):
    model: str | None = argument("folder or Hub name of the model", metavar="NAME")
    backend: str = argument(BACKEND_HELP, "torch", "NAME")
    trust_remote_code: bool = argument(TRUST_HELP, False)
    host: str = argument("address to listen on; 0.0.0.0 accepts other machines", "127.0.0.1", "ADDRESS")
    port: int = argument("port to listen on; 0 for a free one", 7860, check=between(0, 65535))
    examples: list[str] | None = argument("example texts on the page", metavar="TEXT")
    device: str | None = argument("cpu, cuda, ...; by default a GPU if there is one", metavar="NAME")
    copied_only: str | None = argument(COPIED_ONLY_HELP, metavar="REGEX")


def demo(args: DemoArguments) -> None:
    """Serves a web page on which a model can be tried."""
    from ..inference.backends import load_backend
    from ..serving.page import build_demo
    from ..serving.process import run_server

    model, tokenizer = load_backend(
        args.model, args.backend, device=args.device, trust_remote_code=args.trust_remote_code
    )
    name = str(args.model)
    app = build_demo(model, tokenizer, args.examples or (), Path(name).resolve().name, args.copied_only)
    run_server(app, name, args.host, args.port)


COMMAND = Command(demo, "--model NAME ", DemoArguments)
