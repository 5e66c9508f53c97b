package process

import (
	"runtime"
	"sync"
)

// spareThreads is how many operating system threads the guest keeps. A Go process that needs one more while the sandbox
// is at its limit of processes dies, and takes the sandbox along.
const spareThreads = 12

// startThreads makes the runtime create n threads; it never gives them back.
func startThreads(n int) {
	var holding, done sync.WaitGroup
	holding.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			holding.Done()
			holding.Wait() // all hold one at the same time
		})
	}
	done.Wait()
}
