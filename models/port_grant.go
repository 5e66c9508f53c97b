package models

import (
	"context"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// PortGrant lets traffic from outside to one port of a sandbox, until it expires or is revoked.
type PortGrant struct {
	ID        string `gorm:"primaryKey"`
	TenantID  string
	SandboxID string
	Port      uint16
	Public    bool       // needs no token
	CreatedAt time.Time  `gorm:"autoCreateTime:false;default:now()"`
	ExpiresAt *time.Time // nil = it ends with the sandbox
	RevokedAt *time.Time
}

// Tools of a sandbox whose ports are granted with it, if its template serves them.
const (
	MCP    = "mcp"
	VSCode = "vscode"
)

// ToolGrant names the grant of a tool's port. The database writes it with the sandbox.
func ToolGrant(tool, sandboxID string) string { return "pg" + tool + sandboxID }

// writeGrant writes down what a job has granted. A row that stands already is our own.
func writeGrant(tx *gorm.DB, g *PortGrant) error {
	if g == nil {
		return nil
	}
	return tx.Clauses(clause.OnConflict{DoNothing: true}).Create(g).Error
}

// liveGrants is what still holds of the grants of a tenant's sandbox. What is found or changed goes into list.
func liveGrants(db *gorm.DB, list *[]PortGrant, tenantID, sandboxID string) *gorm.DB {
	return db.Model(list).
		Where("tenant_id = ? AND sandbox_id = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > "+
			"now())", tenantID, sandboxID)
}

// PortGrants lists the grants of a tenant's sandbox that hold now, by port and age.
func (s *Store) PortGrants(ctx context.Context, tenantID, sandboxID string) ([]PortGrant, error) {
	var list []PortGrant
	err := liveGrants(s.db.WithContext(ctx), &list, tenantID, sandboxID).Order("port, id").Find(&list).Error
	return list, err
}

// CountPortGrants returns how many grants a tenant's sandbox has.
func (s *Store) CountPortGrants(ctx context.Context, tenantID, sandboxID string) (int, error) {
	return countOf(liveGrants(s.db.WithContext(ctx), &[]PortGrant{}, tenantID, sandboxID))
}

// RevokePort revokes the grants of one port, or one of them where an id is given, and returns those it has revoked. A
// sandbox says of its tools' grants that they are.
func (s *Store) RevokePort(
	ctx context.Context,
	tenantID, sandboxID string,
	port uint16,
	id string,
) ([]PortGrant, error) {
	return inSandbox(ctx, s.db, sandboxID, lockSandbox, func(tx *gorm.DB, _ *Sandbox) (revoked []PortGrant, err error) {
		err = whereSet(liveGrants(tx, &revoked, tenantID, sandboxID).Where("port = ?", port), "id = ?", id).
			Clauses(clause.Returning{}).Update("revoked_at", gorm.Expr("now()")).Error
		if err == nil {
			err = hideTools(tx, sandboxID, revoked)
		}
		return revoked, err
	})
}

// hideTools writes down which of a sandbox's tools are among the grants that were revoked.
func hideTools(tx *gorm.DB, sandboxID string, revoked []PortGrant) error {
	hidden := map[string]any{}
	for _, g := range revoked {
		switch g.ID {
		case ToolGrant(MCP, sandboxID):
			hidden["mcp_revoked"] = true
		case ToolGrant(VSCode, sandboxID):
			hidden["vscode_revoked"] = true
		}
	}
	if len(hidden) == 0 {
		return nil
	}
	return pg.Enqueue(pg.Build(tx).Model(&Sandbox{}).Where("id = ?", sandboxID).Updates(hidden), nil)
}

// PruneGrants forgets grants that have not held for longer than age, and says how many.
func (s *Store) PruneGrants(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "port_grants", "expires_at", age, limit)
}
