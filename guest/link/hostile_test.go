package link

import (
	"context"
	"encoding/binary"
	"io"
	"testing"
	"time"
)

// liar is a guest that welcomes its worker and then says what it likes, as frames or as anything, and ends.
func liar(t *testing.T, framed bool, words []byte) io.ReadWriteCloser {
	t.Helper()
	heard, toGuest := io.Pipe()
	toWorker, say := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		hi, err := newFrameReader(heard).next()
		if err != nil {
			return
		}
		out := appendFrame(nil, frame{kind: welcome, epoch: 1, payload: hi.payload})
		if framed {
			words = appendFrame(nil, frame{kind: data, epoch: 1, payload: words[:min(len(words), MaxPayload)]})
		}
		_, _ = say.Write(append(out, words...))
		_ = say.Close()
		_, _ = io.Copy(io.Discard, heard)
	}()
	closeAll := func() {
		_ = heard.Close()
		_ = say.Close()
		_ = toGuest.Close()
		_ = toWorker.Close()
	}
	t.Cleanup(func() {
		closeAll()
		<-done
	})
	return duplex{toWorker, toGuest, closeAll}
}

// muxFrame is one of the multiplexer's headers with its body.
func muxFrame(kind byte, flags uint16, stream, length uint32, body string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(binary.BigEndian.AppendUint32(b, length), body...)
}

// FuzzWorker checks that no guest makes its worker hang or fall, whatever it says below or inside of the link.
func FuzzWorker(f *testing.F) {
	for _, words := range [][]byte{
		nil, []byte("HTTP/1.1 200 OK\r\n\r\n"),
		appendFrame(nil, frame{kind: data, epoch: 1, seq: 7, payload: []byte("early")}),
		appendFrame(nil, frame{kind: reset, epoch: 1}), appendFrame(nil, frame{kind: welcome, epoch: 9, payload: []byte("other")}),
		muxFrame(0, 2, 1, 5, "hello"),       // data for the worker's stream, acknowledged
		muxFrame(0, 2, 1, 1<<31, "hello"),   // more than the window
		muxFrame(1, 1, 2, 0, ""),            // a stream of its own
		muxFrame(0, 0, 77, 3, "abc"),        // a stream that nobody opened
		muxFrame(1, 8, 1, 0, ""),            // a reset
		muxFrame(2, 1, 0, 5, ""),            // a ping
		muxFrame(3, 0, 0, 2, ""),            // good-bye
		muxFrame(9, 0xffff, 1<<31, 1, "??"), // nothing there is
		{9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9},
	} {
		f.Add(true, words)
		f.Add(false, words)
	}
	f.Fuzz(func(t *testing.T, framed bool, words []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := Dial(ctx, liar(t, framed, words))
		if err != nil {
			t.Fatalf("the welcome was intact: %v", err)
		}
		session, err := OpenStreams(conn, 0)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := session.Open()
		if err == nil {
			_, _ = stream.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			n, _ := io.Copy(io.Discard, stream)
			if n > int64(len(words)) {
				t.Errorf("%d bytes came out of %d", n, len(words))
			}
			_ = stream.Close()
		}
		_ = session.Close()
		if ctx.Err() != nil {
			t.Error("it took for ever")
		}
	})
}
