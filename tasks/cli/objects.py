"""The objects of a store on S3 as they are there: listed with their age, and digested without a local copy."""

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial

from tasks.artifacts.s3 import PART_BYTES, Bucket
from tasks.cli.contents import StoredFile
from tasks.errors import ArtifactError


class Objects(Bucket):
    """Objects below ``s3://bucket/prefix``."""

    def listing(self, area: str) -> dict[str, StoredFile]:
        """Every object below a prefix, by key."""
        return self._run(area, self._listing(area))

    def digest(self, key: str, size: int) -> str | None:
        """SHA-256 of an object of ``size`` bytes, of which one part at a time is in memory; None when there is none."""
        return self._run(key, self._digest(key, size))

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects.

        Raises:
            ArtifactError: some are still there.
        """
        super().delete(keys)
        # A deletion that the server denies is no error to the library.
        for area in sorted({"/".join(key.split("/")[:-1][:2]) for key in keys}):
            if left := sorted(self.sizes(area).keys() & set(keys)):
                raise ArtifactError(
                    f"{self.uri}/{left[0]}: still there after its deletion ({len(left)} of {len(keys)} objects are). "
                    "Allow these credentials to delete, then start the same command again."
                )

    async def _listing(self, area: str) -> dict[str, StoredFile]:
        found: dict[str, StoredFile] = {}
        further: dict[str, str] = {}
        while True:
            page = await self._call("list_objects_v2", Prefix=self._name(f"{area}/"), **further)
            for listed in page.get("Contents", []):
                key = listed["Key"].removeprefix(self._prefix)
                found[key] = StoredFile(int(listed["Size"]), listed["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return found
            further = {"ContinuationToken": page["NextContinuationToken"]}

    async def _digest(self, key: str, size: int) -> str | None:
        digest = hashlib.sha256()

        async def part(start: int) -> bytearray:
            content = bytearray()
            await self._fetch_part(key, start, min(start + PART_BYTES, size), lambda chunk, _: content.extend(chunk))
            return content

        for start in range(0, size, PART_BYTES):
            try:
                content = await self._retried(partial(part, start))
            except FileNotFoundError:
                return None
            await asyncio.to_thread(digest.update, content)
        return digest.hexdigest()
