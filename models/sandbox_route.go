package models

import (
	"context"
)

// Route is how the inside of a sandbox is reached, and by whom.
type Route struct {
	SandboxID  string
	TenantID   string
	State      SandboxState
	Gateway    string       // URL of the gateway of its node, or of one that may open it; empty = it cannot be reached
	SilentMS   int64        `gorm:"column:silent_ms"` // since the end of the node's lease; negative = it holds
	Public     bool         // its ports need no token, but for those of Tools
	Tools      []uint16     `gorm:"serializer:json"` // ports where it serves tools that run commands
	AutoResume bool         // traffic resumes it
	IdleMS     int64        `gorm:"column:idle_ms"` // its idle timeout; 0 = never
	Grants     []RouteGrant `gorm:"serializer:json"`
}

// RouteGrant is a grant that holds.
type RouteGrant struct {
	ID     string `json:"id"`
	Port   uint16 `json:"port"`
	Public bool   `json:"public"`
}

// Route returns how a sandbox of any tenant is reached, or ErrNotFound.
func (s *Store) Route(ctx context.Context, id string) (Route, error) {
	found, err := s.Routes(ctx, []string{id})
	if err == nil && len(found) == 0 {
		return Route{}, ErrNotFound
	}
	if err != nil {
		return Route{}, err
	}
	return found[0], nil
}

// Routes returns how sandboxes of any tenants are reached, as far as they exist. One that no node has to hold is
// reached through any live node of its provider: always the same one, as long as that lives.
func (s *Store) Routes(ctx context.Context, ids []string) ([]Route, error) {
	return scanned[[]Route](s.db.WithContext(ctx).Raw(`
		SELECT s.id AS sandbox_id, s.tenant_id, s.state, s.auto_resume, s.idle_timeout_ms AS idle_ms,
		coalesce(n.gateway, any_node.gateway, '') AS gateway,
			coalesce((extract(epoch FROM now() - n.lease_until) * 1000)::bigint, 0) AS silent_ms,
			coalesce((s.spec->>'public')::boolean, false) AS public,
			(SELECT coalesce(json_agg(t.port), '[]') FROM (VALUES ((s.spec->>'mcp_port')::int), ((s.spec->>'vscode_port')::int))
				AS t (port) WHERE t.port > 0) AS tools,
			(SELECT coalesce(json_agg(json_build_object('id', g.id, 'port', g.port, 'public', g.public)), '[]') FROM port_grants g
				WHERE g.sandbox_id = s.id AND g.revoked_at IS NULL AND (g.expires_at IS NULL OR g.expires_at > now())) AS grants
		FROM sandboxes s LEFT JOIN nodes n ON n.id = s.node_id LEFT JOIN LATERAL (
			SELECT l.gateway FROM nodes l WHERE s.node_id IS NULL AND s.state IN ('running', 'paused') AND l.provider = s.provider
				AND l.engine = '' AND l.gateway <> '' AND l.lease_until > now() ORDER BY md5(l.id || s.id) LIMIT 1) any_node ON true
		WHERE s.id = ANY (?::text[])`, idArray(ids)))
}

// Held returns the backend's id, empty while nobody knows it, of a sandbox that a node may open: one that it holds, or
// one of its provider that no node has to hold. Any other, and one that has ended, answers ErrNotFound.
func (s *Store) Held(ctx context.Context, by Node, id string) (ref string, err error) {
	var refs []string
	err = s.db.WithContext(ctx).Model(&Sandbox{}).Where("id = ? AND ended_at IS NULL", id).
		Where("node_id = ? OR node_id IS NULL AND provider = ?", by.ID, by.Provider).
		Pluck("coalesce(provider_ref, '')", &refs).Error
	if err == nil && len(refs) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return "", err
	}
	return refs[0], nil
}

// Touch counts traffic as use of the sandboxes, and returns those that somebody else is changing just now: they are not
// waited for, and that need not be use.
func (s *Store) Touch(ctx context.Context, ids []string) (missed []string, err error) {
	return scanned[[]string](s.db.WithContext(ctx).Raw(`
		WITH free AS (
			SELECT id FROM sandboxes WHERE id = ANY (CAST(@ids AS text[])) AND ended_at IS NULL FOR NO KEY UPDATE SKIP LOCKED),
		touched AS (UPDATE sandboxes s SET last_active_at = greatest(s.last_active_at, now()) FROM free WHERE s.id = free.id RETURNING s.id)
		SELECT id FROM sandboxes WHERE id = ANY (CAST(@ids AS text[])) AND ended_at IS NULL AND id NOT IN (SELECT id FROM touched)`,
		map[string]any{"ids": idArray(ids)}))
}

// Holding returns those of the sandboxes that a node may open and that have not ended: their ids and states.
func (s *Store) Holding(ctx context.Context, by Node, ids []string) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Select("id", "state").Where("id = ANY (?::text[])", idArray(ids)).
		Where("ended_at IS NULL AND (node_id = ? OR node_id IS NULL AND provider = ?)", by.ID, by.Provider))
}
