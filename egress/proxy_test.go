package egress_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/egress"
)

// raw sends bytes to the proxy and returns all that it answers until it closes.
func (y *yard) raw(t *testing.T, bytes string) string {
	t.Helper()
	conn, err := net.Dial("tcp", y.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, bytes)
	_ = conn.(*net.TCPConn).CloseWrite()
	text, _ := io.ReadAll(conn) // a reset is an answer, too
	return string(text)
}

func TestWhatAttackersAskFor(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	port := site(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	y := newYard(t, egress.Policy{Allow: []string{"*", "good.test"}})
	y.names["inside.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	y.names["mapped.test"] = []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
		"[2002:7f00:1::]", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "127.0.0.1.",
		"localhost", "localhost.", "inside.test", "mapped.test", "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.1",
		"172.17.0.1", "192.168.0.1", "224.0.0.1", "255.255.255.255", "metadata.google.internal", "127.0.0.1%00.good.test",
		"good.test%20127.0.0.1", "good.test@127.0.0.1", "[::1%25lo]",
	} {
		target := host + ":" + port
		if answer := y.raw(t, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); strings.Contains(answer, " 200 ") {
			t.Errorf("CONNECT %s: %s", target, answer)
		}
		if answer := y.raw(t, "GET http://"+target+"/ HTTP/1.1\r\nHost: "+target+"\r\nConnection: close\r\n\r\n"); strings.Contains(answer, " 200 ") {
			t.Errorf("GET %s: %s", target, answer)
		}
		name := strings.Trim(host, "[]")
		n, _ := strconv.Atoi(port)
		socks := "\x05\x01\x00\x05\x01\x00\x03" + string(rune(len(name))) + name + string([]byte{byte(n >> 8), byte(n)})
		if answer := y.raw(t, socks); len(answer) > 3 && answer[3] == 0 {
			t.Errorf("SOCKS %s was let through", name)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// TestSmuggledRequestsGoNowhereElse has requests whose end two readers may see in two places. Whatever comes of them
// goes to the address that was allowed.
func TestSmuggledRequestsGoNowhereElse(t *testing.T) {
	t.Parallel()
	var secret atomic.Int32
	hidden := site(t, func(http.ResponseWriter, *http.Request) { secret.Add(1) })
	open := site(t, hello)
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1:" + open}})
	inner := "GET http://127.0.0.1:" + hidden + "/ HTTP/1.1\r\nHost: 127.0.0.1:" + hidden + "\r\n\r\n"
	at := "http://127.0.0.1:" + open + "/"
	size := strconv.Itoa(len(inner))
	for _, attack := range []string{
		"POST " + at + " HTTP/1.1\r\nHost: 127.0.0.1:" + hidden + "\r\nContent-Length: 0\r\n\r\n" + inner,
		"POST " + at + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + size + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"POST " + at + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: " + size + "\r\n\r\n" + inner,
		"POST " + at + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" + inner,
		"POST " + at + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"GET " + at + " HTTP/1.1\r\nHost: x\r\nX: y\r\n " + inner,
		"GET " + at + "\x00 HTTP/1.1\r\nHost: x\r\n\r\n" + inner,
		"GET http://127.0.0.1:" + hidden + "/ HTTP/1.1\r\nHost: 127.0.0.1:" + open + "\r\n\r\n",
		"CONNECT 127.0.0.1:" + hidden + " HTTP/1.1\r\nHost: 127.0.0.1:" + open + "\r\n\r\n" + inner,
	} {
		y.raw(t, attack)
	}
	if n := secret.Load(); n != 0 {
		t.Errorf("%d requests arrived where none may", n)
	}
	if status, _ := y.get(t, at); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}

func TestOversizedHeadersAreRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Public())
	answer := y.raw(t, "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
	if strings.Contains(answer, " 200 ") {
		t.Errorf("got %.100s", answer)
	}
	long := strings.Repeat("a", 1<<10) + ".test:80"
	if answer := y.raw(t, "CONNECT "+long+" HTTP/1.1\r\nHost: "+long+"\r\n\r\n"); !strings.Contains(answer, " 403 ") {
		t.Errorf("got %.100s", answer)
	}
}

// TestASlowCrowdHarmsNobody opens thousands of connections that say nothing or little. Those that the proxy serves end
// by its patience; meanwhile another one still gets its turn.
func TestASlowCrowdHarmsNobody(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1"}})
	port := site(t, hello)
	var crowd []net.Conn
	for i := range 600 {
		conn, err := net.DialTimeout("tcp", y.addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "GET http://127.0.0.1/ HTTP/1.1\r\nX-Slow:")
		}
		crowd = append(crowd, conn)
	}
	for _, c := range crowd[300:] {
		_ = c.Close()
	}
	status := 0
	for deadline := time.Now().Add(3 * patience); status != 200 && time.Now().Before(deadline); {
		answer, err := y.client.Get("http://127.0.0.1:" + port + "/")
		if err != nil {
			continue
		}
		status = answer.StatusCode
		_ = answer.Body.Close()
	}
	for _, c := range crowd[:300] {
		_ = c.Close()
	}
	if status != 200 {
		t.Error("nobody else got a turn")
	}
}

func TestSOCKS(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1", "name.test"}})
	y.names["name.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	n, _ := strconv.Atoi(site(t, hello))
	port := string([]byte{byte(n >> 8), byte(n)})
	request := "GET / HTTP/1.0\r\nHost: socks\r\n\r\n"
	for what, target := range map[string]string{"address": "\x01\x7f\x00\x00\x01", "name": "\x03\x09name.test"} {
		answer := y.raw(t, "\x05\x02\x00\x02"+"\x05\x01\x00"+target+port+request)
		if !strings.HasPrefix(answer, "\x05\x00\x05\x00\x00\x01") || !strings.HasSuffix(answer, "hello socks") {
			t.Errorf("%s: %q", what, answer)
		}
	}
	for what, c := range map[string]struct{ says, hears string }{
		"bind":      {"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01" + port, "\x05\x00\x05\x07"},
		"udp":       {"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01" + port, "\x05\x00\x05\x07"},
		"denied":    {"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01" + port, "\x05\x00\x05\x02"},
		"password":  {"\x05\x01\x02", "\x05\xff"},
		"no kind":   {"\x05\x01\x00\x05\x01\x00\x09aaaa" + port, "\x05\x00\x05\x08"},
		"cut short": {"\x05\x01\x00\x05\x01\x00\x03\xff", "\x05\x00"},
	} {
		if answer := y.raw(t, c.says); !strings.HasPrefix(answer, c.hears) {
			t.Errorf("%s: %q", what, answer)
		}
	}
}

// TestUpgradesPass upgrades a plain HTTP connection through the proxy.
func TestUpgradesPass(t *testing.T) {
	t.Parallel()
	y := newYard(t, egress.Policy{Allow: []string{"127.0.0.1"}})
	port := site(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = both.Flush()
		line, _ := both.ReadString('\n')
		_, _ = both.WriteString(line)
		_ = both.Flush()
	})
	conn, err := net.Dial("tcp", y.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "GET http://127.0.0.1:"+port+"/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", answer, err)
	}
	defer answer.Body.Close()
	_, _ = io.WriteString(conn, "echo this\n")
	if line, err := in.ReadString('\n'); line != "echo this\n" {
		t.Errorf("got %q, %v", line, err)
	}
}
