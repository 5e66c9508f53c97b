package link

import (
	"sync"
	"testing"
)

// TestAStreamIsClosedWhileItIsRead: what still waits in a closed stream is dropped while its reader reads on, and all of
// them come to an end. Two readers of one yamux stream whose other side has ended take two locks in opposite orders.
func TestAStreamIsClosedWhileItIsRead(t *testing.T) {
	t.Parallel()
	worker, guest := pair(t, 0)
	for range 1000 {
		a, b := meet(t, worker, guest)
		if _, err := b.Write(make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
		if err := b.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var reading sync.WaitGroup
		begun := make(chan struct{})
		reading.Go(func() {
			_, err := a.Read(make([]byte, 1))
			for close(begun); err == nil; {
				_, err = a.Read(make([]byte, 1))
			}
		})
		<-begun
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
