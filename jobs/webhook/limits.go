package webhook

import (
	"sync"

	"sandyard/models"
)

// shares counts which of a worker's slots for webhooks are in use. No tenant has all of them, and no host all of a
// tenant's; who finds none free waits in PostgreSQL.
type shares struct {
	mu        sync.Mutex
	tenants   map[string]int
	endpoints map[endpoint]int
}

type endpoint struct {
	tenant string
	host   int64
}

func (s *shares) take(tenantID string, host int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenants == nil {
		s.tenants, s.endpoints = map[string]int{}, map[endpoint]int{}
	}
	to := endpoint{tenantID, host}
	if s.tenants[tenantID] >= models.DeliveryShare || s.endpoints[to] >= models.EndpointShare {
		return false
	}
	s.tenants[tenantID]++
	s.endpoints[to]++
	return true
}

func (s *shares) giveBack(tenantID string, host int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := endpoint{tenantID, host}
	if s.tenants[tenantID]--; s.tenants[tenantID] == 0 {
		delete(s.tenants, tenantID)
	}
	if s.endpoints[to]--; s.endpoints[to] == 0 {
		delete(s.endpoints, to)
	}
}
