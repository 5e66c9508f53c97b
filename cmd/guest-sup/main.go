// Guest-sup is the supervisor between the guest and a command. The guest finds it as "sup" in its own directory;
// without it the guest runs itself as "guest sup", which takes 2.5 ms longer to start and more memory.
package main

import "sandyard/guest/supervisor"

func main() { supervisor.Run() }
