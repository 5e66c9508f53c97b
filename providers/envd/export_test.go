package envd

import (
	"context"
	"net/http"

	"sandyard/guest/protocol"
)

// New uses a guest that serves plain HTTP at baseURL: it has calls, and no streams.
func New(hc *http.Client, baseURL string) *Sandbox {
	s := &Sandbox{done: make(chan struct{})}
	s.connect(hc, baseURL)
	return s
}

// HTTP returns what speaks envd's protocol with the guest: a client, and the URL that all requests must begin with.
func (s *Sandbox) HTTP() (client *http.Client, baseURL string) { return s.http, s.base }

// ExecInfos lists the named commands that the guest knows, running and finished.
func (s *Sandbox) ExecInfos(ctx context.Context) ([]protocol.ExecInfo, error) {
	var list []protocol.ExecInfo
	err := s.call(ctx, http.MethodGet, protocol.ExecsPath, nil, &list, maxExecList)
	return list, err
}
