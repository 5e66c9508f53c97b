//go:build attack

package attack

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// full is the largest body that is taken (MAX_BODY_BYTES).
const full = 16<<20 - 1

// wrongBodies sends 16 MiB of what is wrong to every route that takes a body.
func wrongBodies(s *stage) {
	prey := s.intruder.own(s.t)
	answers := &tally{}
	names, nested, inside := unknownNames(full), strings.Repeat("[", full), nesting(full)
	s.walk(func(to route) {
		if to.method == "GET" || to.method == "HEAD" || to.method == "OPTIONS" || to.method == "CONNECT" || to.method == "TRACE" {
			return
		}
		for _, body := range [][]byte{wrongItems(to, full), names, []byte(nested), inside} {
			r := s.intruder.do(s.request(to, body, s.ownIDs(to, prey)))
			if answers.add(r); r.status == 422 && r.size > maxProblem {
				s.breach("%v: the error has %d bytes", to, r.size)
			}
		}
	})
	s.reached("wrong items, unknown names, nested arrays and objects to every route: %v", answers)
}

// maxProblem is what an error document may hold.
const maxProblem = 64 << 10

// wrongItems fills the arrays and maps that the route takes with what does not belong there.
func wrongItems(to route, size int) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	var many []field
	for _, f := range to.fields {
		if f.kind == "array" || f.kind == "object" {
			many = append(many, f)
		}
	}
	if len(many) == 0 {
		many = []field{{"argv", "array"}}
	}
	for n, f := range many {
		if n > 0 {
			b.WriteByte(',')
		}
		until := size * (n + 1) / len(many)
		if f.kind == "array" {
			fmt.Fprintf(&b, `%q:[0`, f.name)
			b.WriteString(strings.Repeat(",0", (until-b.Len()-20)/2))
			b.WriteByte(']')
			continue
		}
		fmt.Fprintf(&b, `%q:{"x":0`, f.name)
		for i := 0; b.Len() < until-40; i++ {
			fmt.Fprintf(&b, `,"%x":0`, i)
		}
		b.WriteByte('}')
	}
	b.WriteByte('}')
	return b.Bytes()
}

func unknownNames(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"x":0`)
	for i := 0; b.Len() < size-40; i++ {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// nesting is valid JSON that is as deep as a decoder takes, again and again.
func nesting(size int) []byte {
	one := `"a":` + strings.Repeat(`{"a":`, 4000) + `0` + strings.Repeat(`}`, 4000)
	var b bytes.Buffer
	b.WriteString(`{"args":{` + one)
	for b.Len() < size-2*len(one) {
		b.WriteString("," + one)
	}
	b.WriteString("}}")
	return b.Bytes()
}

// crowdSize is how many bodies come at once.
const crowdSize = 200

// crowds sends 200 bodies of 16 MiB at once, of several kinds.
func crowds(s *stage) {
	box := s.intruder.own(s.t)
	content := []byte(`{"path":"x","content":"` + strings.Repeat("x", full-100) + `"}`)
	exec := route{fields: []field{{"argv", "array"}, {"env", "object"}}}
	for _, c := range []struct {
		what, path string
		body       []byte
	}{
		{"files", "/v1/sandboxes/" + box + "/files/write", content},
		{"wrong arguments", "/v1/sandboxes/" + box + "/exec", wrongItems(exec, full)},
		{"E2B creates", "/sandboxes", unknownNames(full)},
	} {
		answers := &tally{}
		s.atOnce(crowdSize, func(int) {
			answers.add(s.intruder.do(request{method: "POST", path: c.path, body: c.body, patience: longest}))
		})
		s.reached("%s: %v", c.what, answers)
		if s.processes["api"].Ended() {
			return
		}
	}
}

// atOnce calls f n times at once.
func (s *stage) atOnce(n int, f func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// slowBodies holds 200 bodies that never come to their end. What the intruder holds must not be the neighbour's share.
func slowBodies(s *stage) {
	box := s.intruder.own(s.t)
	answers := &tally{}
	hold := 8 * time.Second
	s.atOnce(crowdSize, func(int) {
		conn, err := net.Dial("tcp", s.api)
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(hold)) // the kernel knows the time
		fmt.Fprintf(conn, "POST /v1/sandboxes/%s/files/write HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", box, s.intruder.key, full)
		_, _ = io.Copy(conn, io.LimitReader(strings.NewReader(strings.Repeat(" ", 4<<20)), 4<<20))
		first := make([]byte, 12)
		if _, err := io.ReadFull(conn, first); err == nil {
			answers.add(reply{status: int(first[9]-'0')*100 + int(first[10]-'0')*10 + int(first[11]-'0')})
			return
		}
		answers.add(reply{err: err})
	})
	s.reached("%d bodies of which 4 MiB come, held for %v: %v", crowdSize, hold, answers)
}
