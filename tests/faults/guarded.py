"""An S3 server that asks for permission: it knows users, their keys and what they may do."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

from tools.s3 import S3


class Guarded:
    def __init__(self, s3: S3) -> None:
        self.s3 = s3
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        self._iam = boto3.client("iam", endpoint_url=s3.endpoint, **keys)
        self._users = 0

    def user(self, *statements: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """A new user who may do so much: name, and environment."""
        self._users += 1
        name = f"user-{self._users}"
        self._iam.create_user(UserName=name)
        self.allow(name, *statements)
        key = self._iam.create_access_key(UserName=name)["AccessKey"]
        return name, {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def allow(self, name: str, *statements: dict[str, Any]) -> None:
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self._iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Inside the block every request must be signed and permitted."""
        self._ask_after("0")
        try:
            yield
        finally:
            self._ask_after("inf")

    def _ask_after(self, requests: str) -> None:
        address = f"{self.s3.endpoint}/moto-api/reset-auth"
        plain = {"Content-Type": "text/plain"}
        request = urllib.request.Request(address, requests.encode(), plain, method="POST")
        urllib.request.urlopen(request, timeout=30).close()


def act_as(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
