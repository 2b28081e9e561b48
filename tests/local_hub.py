"""A Hub without a network: what `huggingface_hub` would send to it goes into the client's cache, where models are
found by name, offline. For processes of their own, which `run_elsewhere` starts."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elsewhere import answers

CARD = "---\nlibrary_name: transformers\n---\n\n# A card with scores\n"


def use_cache_as_hub(cache: Path) -> None:
    """Makes `HfApi` write into the cache: a snapshot and a reference for each branch of a repository."""
    from huggingface_hub import CommitOperationAdd, HfApi, RepoUrl
    from huggingface_hub.utils import filter_repo_objects

    def find_repo(name: str) -> Path:
        return cache / f"models--{name if '/' in name else f'me/{name}'}".replace("/", "--")

    def open_branch(repo: Path, branch: str) -> Path:
        """The folder of a branch: one commit, which changes; its id has the form of the Hub's."""
        commit = sha1(branch.encode()).hexdigest()
        (repo / "refs" / branch).write_text(commit)
        return repo / "snapshots" / commit

    def create_repo(api: Any, repo_id: str, private: bool | None = None, **options: Any) -> Any:
        repo = find_repo(repo_id)
        (repo / "refs").mkdir(parents=True, exist_ok=True)
        if private:
            (repo / "private").touch()
        return RepoUrl(f"https://huggingface.co/{repo_id if '/' in repo_id else f'me/{repo_id}'}")

    def create_branch(api: Any, repo_id: str, branch: str, **options: Any) -> None:
        repo = find_repo(repo_id)
        if not (repo / "refs" / branch).exists():
            shutil.copytree(open_branch(repo, "main"), open_branch(repo, branch))

    def create_commit(
        api: Any, repo_id: str, operations: Sequence[Any], revision: str | None = None, **options: Any
    ) -> Any:
        folder = open_branch(find_repo(repo_id), revision or "main")
        for each in operations:
            assert isinstance(each, CommitOperationAdd)
            target = folder / each.path_in_repo
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(each.path_or_fileobj).read_bytes())
        return SimpleNamespace(commit_url=f"https://huggingface.co/{repo_id}/commit/1")

    def upload_folder(api: Any, *, repo_id: str, folder_path: str, ignore_patterns: Any = None, **options: Any) -> Any:
        paths = {str(path.relative_to(folder_path)): path for path in Path(folder_path).rglob("*") if path.is_file()}
        kept = filter_repo_objects(paths, ignore_patterns=ignore_patterns)
        return create_commit(api, repo_id, [CommitOperationAdd(path, paths[path]) for path in kept])

    for function in (create_repo, create_branch, create_commit, upload_folder):
        setattr(HfApi, function.__name__, function)


# ---- what a user does with a Hub


def push(cache: str, folders: dict[str, str], page: Sequence[tuple[str, str]], texts: Sequence[str]) -> Any:
    """Pushes the saved models main and next as these revisions of me/tiny, from folders with a card and without, and
    does what the page says; returns the card that stays in the folder, and the answers of me/tiny."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    use_cache_as_hub(Path(cache))
    models = {name: AutoModelForSeq2SeqLM.from_pretrained(folder) for name, folder in folders.items()}
    tokenizer = AutoTokenizer.from_pretrained(folders["main"])
    models["main"].push_to_hub("tiny")
    tokenizer.push_to_hub("tiny")
    models["next"].push_to_hub("me/tiny", revision="next")
    Path("carded").mkdir()
    Path("carded", "README.md").write_text(CARD, encoding="utf-8")
    for folder in ("carded", "uncarded"):
        models["main"].save_pretrained(folder, push_to_hub=True)
        tokenizer.save_pretrained(folder, push_to_hub=True)
    follow(page)
    return Path("carded", "README.md").read_text(encoding="utf-8"), answers("me/tiny", texts)


def follow(page: Sequence[tuple[str, str]]) -> None:
    """Runs the Python and the commands of a page, these with few steps, small sizes and a test file."""
    from copynet_hf.cli import main

    small = {
        "train": ["--max_steps=1", "--hidden_size=8", "--test_file=train.jsonl", "--max_target_length=4"],
        "generate": ["--max_target_length=4"],
    }
    names: dict[str, Any] = {}
    for language, text in page:
        if language == "python":
            exec(compile(text, "the page", "exec"), names)
        for line in text.splitlines() if language == "bash" else []:
            program, command, *said = shlex.split(line)
            if program == "copynet-hf" and main([command, *said, *small[command]]):
                raise RuntimeError(f"failed: {line}")
