"""Uploads a folder to the Hub as one commit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from httpx import TransportError
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id

# Weights and graphs of an earlier model, which are removed.
REPLACED = re.compile(r"onnx(-\w+)?/.+|model[^/]*\.safetensors(\.index\.json)?")


def check_repo_name(repo: str) -> None:
    """Raises ValueError if the name does not have the form user/name."""
    try:
        validate_repo_id(repo)
    except HFValidationError:
        is_valid = False
    else:
        is_valid = repo.count("/") == 1
    if not is_valid:
        raise ValueError(f"--repo is {repo!r}: give user/name, of letters, digits, '-', '_' and '.'")


def check_login() -> None:
    """Raises ValueError if the Hub cannot be reached or does not know the user."""
    with _explain_errors():
        HfApi().whoami()


def list_files(folder: Path) -> dict[str, Path]:
    """The files of a folder and of those in it, by their paths in the repository."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return dict(sorted((path.relative_to(folder).as_posix(), path) for path in files))


def upload(
    files: Mapping[str, Path], repo: str, message: str, *, private: bool = False, revision: str | None = None
) -> str:
    """Commits the files to a repository, which is created if there is none, together with the removal of the files of
    an earlier model.

    Args:
        files: by their paths in the repository.
        repo: user/name.
        message: of the commit.
        private: whether a new repository is private.
        revision: the branch, which is created from main if there is none; None: main.

    Returns:
        the address of the commit, the last one if nothing has changed.

    Raises:
        ValueError: the user may not write there, or the repository is public and was to be private.
    """
    api = HfApi()
    with _explain_errors(repo):
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise ValueError(f"--repo {repo} is public: leave --private out, or make it private on its settings page")
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        stale = [
            path
            for path in api.list_repo_files(repo, revision=revision)
            if path not in files and REPLACED.fullmatch(path)
        ]
        # `upload_folder` may take several commits, between which others would load half of a model
        commit = api.create_commit(
            repo,
            [CommitOperationAdd(path, file) for path, file in files.items()]
            + [CommitOperationDelete(path) for path in stale],
            commit_message=message,
            revision=revision,
        )
    return commit.commit_url


@contextmanager
def _explain_errors(repo: str = "the request") -> Iterator[None]:
    """Raises the Hub's refusals as ValueError that say what to do."""
    try:
        yield
    except LocalTokenNotFoundError:
        raise ValueError("you are not logged in to the Hub: run hf auth login") from None
    except OfflineModeIsEnabled:
        raise ValueError("HF_HUB_OFFLINE is set, so nothing can be uploaded: unset it") from None
    except TransportError as error:
        raise ValueError(f"the Hub cannot be reached ({error}): check the connection and try again") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 401:
            raise ValueError("the Hub does not accept your token: run hf auth login") from error
        if status == 403:
            raise ValueError(
                f"--repo is {repo}, where your token may not write: give a repository of yours, or run hf auth login "
                "with a token that may write"
            ) from error
        raise ValueError(f"the Hub refuses {repo} ({error.server_message or error}): try again") from error
