package egress_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

const (
	nameServer = "9.9.9.9" // in the tests' namespace every address is of this machine
	webPort    = "8000"
	// What the installation itself stands on, at a public address.
	ownHost, ownAddress = "postgres.own.test", "93.184.50.1"
	ownGateway          = "93.184.51.1"
)

// ports are those at which every address answers, those of PostgreSQL, Redis and Docker among them.
func ports() []string { return []string{webPort, "80", "443", "5432", "6379", "2375"} }

// world is the outside: a name server, and web servers behind every address there is. It remembers who was reached.
type world struct {
	ca  *authority
	git http.Handler // nil = there is none

	mu      sync.Mutex
	names   map[string][]netip.Addr // what a name leads to
	later   map[string][]netip.Addr // and from the second time on, if that is something else
	asked   map[string]int
	reached map[netip.Addr]int
}

// newWorld serves until the test ends. There can be one at a time.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		ca: newAuthority(t), git: repositories(t),
		names: map[string][]netip.Addr{}, later: map[string][]netip.Addr{}, asked: map[string]int{}, reached: map[netip.Addr]int{},
	}
	udp, err := net.ListenPacket("udp", net.JoinHostPort(nameServer, "53"))
	check(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { w.answerNames(udp) })
	sites := w.sites(t)
	var servers []*http.Server
	for _, port := range ports() {
		l, err := net.Listen("tcp", ":"+port)
		check(t, err)
		server := &http.Server{Handler: sites, ConnContext: w.arrived, ErrorLog: log.New(io.Discard, "", 0)}
		servers = append(servers, server)
		if port == "443" {
			server.TLSConfig = &tls.Config{GetCertificate: w.ca.certify}
			serving.Go(func() { _ = server.ServeTLS(l, "", "") })
		} else {
			serving.Go(func() { _ = server.Serve(l) })
		}
	}
	w.name(ownHost, ownAddress)
	t.Cleanup(func() {
		_ = udp.Close()
		for _, s := range servers {
			_ = s.Close()
		}
		serving.Wait()
	})
	return w
}

// sites are what all the web servers hold.
func (w *world) sites(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", w.page)
	mux.HandleFunc("/sink", sink)
	packages := index(t)
	mux.Handle("/simple/", packages)
	mux.Handle("/wheels/", packages)
	mux.Handle("/apt/", debian(t))
	mux.Handle("/npm/", registry(t))
	if w.git != nil {
		mux.Handle("/git/", w.git)
	}
	return mux
}

type reachedKey struct{}

// arrived notes where a connection went.
func (w *world) arrived(ctx context.Context, c net.Conn) context.Context {
	ap, _ := netip.ParseAddrPort(c.LocalAddr().String())
	ip := ap.Addr().Unmap()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[ip]++
	return context.WithValue(ctx, reachedKey{}, ip)
}

// page says where it was asked. It keeps no connection, so that every request is one that the policy is asked about.
func (w *world) page(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Connection", "close")
	if to := r.URL.Query().Get("to"); to != "" {
		http.Redirect(rw, r, to, http.StatusFound)
		return
	}
	fmt.Fprintf(rw, "at %v host %s\n", r.Context().Value(reachedKey{}), r.Host)
}

// at counts the connections that an address got.
func (w *world) at(ip string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached[netip.MustParseAddr(ip)]
}

// lookups counts how often a name was asked for.
func (w *world) lookups(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[name]
}

// name makes a name lead somewhere; then, from the second lookup of its addresses on, elsewhere.
func (w *world) name(name string, to string, then ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = []netip.Addr{netip.MustParseAddr(to)}
	for _, ip := range then {
		w.later[name] = append(w.later[name], netip.MustParseAddr(ip))
	}
}

func (w *world) answerNames(udp net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := udp.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := w.answer(buf[:n]); answer != nil {
			_, _ = udp.WriteTo(answer, from)
		}
	}
}

// answer answers one question of the domain name system (RFC 1035) for A and AAAA.
func (w *world) answer(q []byte) []byte {
	const head, typeA, typeAAAA = 12, 1, 28
	if len(q) < head {
		return nil
	}
	var labels []string
	at := head
	for at < len(q) && q[at] != 0 {
		end := at + 1 + int(q[at])
		if end >= len(q) {
			return nil
		}
		labels = append(labels, string(q[at+1:end]))
		at = end
	}
	if at+5 > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[at+1:])
	question := q[head : at+5]
	var found [][]byte
	for _, ip := range w.lookup(strings.ToLower(strings.Join(labels, ".")), kind == typeA) {
		if ip.Is4() == (kind == typeA) && (kind == typeA || kind == typeAAAA) {
			found = append(found, ip.AsSlice())
		}
	}
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, byte(len(found)), 0, 0, 0, 0}, question...)
	if len(found) == 0 && !w.knows(strings.ToLower(strings.Join(labels, "."))) {
		out[3] = 0x83 // no such name
	}
	for _, data := range found {
		out = append(out, 0xc0, head, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
		out = append(out, data...)
	}
	return out
}

func (w *world) knows(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.names[name]) > 0
}

func (w *world) lookup(name string, count bool) []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if count {
		w.asked[name]++
	}
	if later := w.later[name]; later != nil && w.asked[name] > 1 {
		return later
	}
	return w.names[name]
}
