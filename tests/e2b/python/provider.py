"""Uses a sandbox, whose id is the argument, that was made by Sandyard's provider e2b."""

import sys

from e2b import Sandbox, SandboxQuery

box = Sandbox.connect(sys.argv[1], timeout=300)
info = box.get_info()
assert info.metadata["suite"] == "provider" and info.metadata["sandyard_sandbox"] == "forclients", info
ours = Sandbox.list(query=SandboxQuery(metadata={"sandyard_fleet": "inner"})).next_items()
assert [b.sandbox_id for b in ours] == [sys.argv[1]], ours
done = box.commands.run("echo $GREETING; cat from-provider")
assert done.stdout == "hello\nby the provider", done
box.files.write("from-client", "by the client")
print("the client works on the provider's sandbox")
