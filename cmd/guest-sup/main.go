// Guest-sup is the supervisor that the guest starts for every command. The guest finds it as "sup" in its own
// directory; without it the guest runs itself as "guest sup", which takes 2.5 ms longer to start.
package main

import (
	"syscall"

	"sandyard/guest/sup"
)

func main() { syscall.Exit(sup.Run()) }
