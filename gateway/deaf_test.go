package gateway_test

import (
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"

	"sandyard/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDeafUntilItsEnd: what the other side has said is read although it takes nothing more, and then writes fail.
func TestDeafUntilItsEnd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn := gateway.Deaf(dialled)
	defer conn.Close()
	if _, err := other.Write([]byte("no more")); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	for range 100 { // the first one may still go out
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			t.Fatalf("a write failed before the end was read: %v", err)
		}
	}
	if said, _ := io.ReadAll(conn); string(said) != "no more" { // it may end by a reset
		t.Errorf("read %q", said)
	}
	for range 100 {
		if _, err = conn.Write(make([]byte, 1000)); err != nil {
			return
		}
	}
	t.Error("writes go on after the end was read")
}
