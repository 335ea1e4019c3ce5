import base64
import json
import sys

from verify import verify


def accepts(request):
    try:
        verify(request["secret"], request["headers"], base64.b64decode(request["body"]))
        return True
    except ValueError:
        return False


json.dump([accepts(r) for r in json.load(sys.stdin)], sys.stdout)
