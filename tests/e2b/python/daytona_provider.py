"""Uses a sandbox, whose id is the argument, that was made by Sandyard's provider daytona."""

import sys

from daytona import Daytona, ListSandboxesQuery

client = Daytona()
box = client.get(sys.argv[1])
assert box.state == "started" and box.labels["suite"] == "provider", box
assert box.labels["sandyard_sandbox"] == "forclients" and box.network_block_all, box
ours = list(client.list(ListSandboxesQuery(labels={"sandyard_fleet": "inner"})))
assert [b.id for b in ours] == [sys.argv[1]], ours
done = box.process.exec("echo $GREETING; cat /tmp/from-provider")
assert done.result == "hello\nby the provider", done
box.fs.upload_file(b"by the client", "/tmp/from-client")
assert box.fs.download_file("/tmp/from-provider") == b"by the provider"
print("the client works on the provider's sandbox")
