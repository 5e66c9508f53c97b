package daytona_test

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"testing"

	"sandyard/providers/remote/remotetest"
)

type dialer interface {
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// TestAPreviewIsAskedAsAProxy: the token and the wish for the program's own answer go there, the caller's headers of
// the vendor and the account's key do not.
func TestAPreviewIsAskedAsAProxy(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	box, _ := opened(t, v)
	got := make(chan http.Header, 1)
	preview, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })}
	go func() { _ = srv.Serve(preview) }()
	defer srv.Close()
	port := preview.Addr().(*net.TCPAddr).Port // the program listens where its preview is
	v.fault("GET {id}/ports/"+strconv.Itoa(port)+"/preview-url",
		remotetest.Refusing(200, `{"sandboxId":"vendor1","url":"http://`+preview.Addr().String()+`","token":"secret"}`))
	conn, err := box.(dialer).DialPort(t.Context(), uint16(port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://program/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Daytona-Preview-Token", "forged")
	req.Header.Set("X-Daytona-Skip-Last-Activity-Update", "true")
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	h := <-got
	for name, want := range map[string]string{
		"X-Daytona-Preview-Token": "secret", "X-Daytona-Skip-Preview-Warning": "true", "X-Daytona-Disable-Cors": "true",
		"X-Daytona-Skip-Last-Activity-Update": "", "Authorization": "", "X-Forwarded-Host": "program",
	} {
		if h.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, h.Get(name), want)
		}
	}
}
