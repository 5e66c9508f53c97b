// Shim holds one sandbox of the local provider, which starts it. It is of no use by itself.
package main

import (
	"os"

	"sandyard/providers/local/shim"
)

func main() { os.Exit(shim.Main()) }
