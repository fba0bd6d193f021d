"""moto's S3 server, which as S3 keeps the first of several conditional writes at the same time.

    python tools/moto_server.py -H HOST -p PORT

moto by itself looks for the object, and writes it later; another thread may do the same between the two.
"""

import threading
from typing import Any
from unittest.mock import patch

from moto.s3.responses import S3Response
from moto.server import main

_put, _one_at_a_time = S3Response._key_response_put, threading.Lock()


def _put_alone(*inputs: Any) -> Any:
    with _one_at_a_time:
        return _put(*inputs)


if __name__ == "__main__":
    with patch.object(S3Response, "_key_response_put", _put_alone):
        main()
