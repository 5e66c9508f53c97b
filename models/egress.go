package models

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"
)

// maxDenials is how many different denials are kept of one sandbox.
const maxDenials = 200

// EgressUse is what a sandbox has used of the outside, or, in a report, what has come to that.
type EgressUse struct {
	SandboxID   string
	Connections int64
	Denied      int64
	Sent        int64 // bytes
	Received    int64
	Denials     []EgressDenial `gorm:"-" json:"-"`
}

// EgressDenial is a kind of connection that was refused.
type EgressDenial struct {
	SandboxID string
	Target    string // host:port; empty = it could not be read
	Reason    string
	Count     int64
	FirstAt   time.Time
	LastAt    time.Time
}

// Egress returns the policy of a sandbox of any tenant; nil = it may connect to nowhere.
func (s *Store) Egress(ctx context.Context, sandboxID string) (json.RawMessage, error) {
	var b Sandbox
	err := s.db.WithContext(ctx).Select("egress").Where("id = ?", sandboxID).Take(&b).Error
	return b.Egress, notFound(err)
}

// Egresses returns the policies of sandboxes of any tenants, without those that may connect to nowhere.
func (s *Store) Egresses(ctx context.Context, ids []string) (map[string]json.RawMessage, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var list []Sandbox
	err := s.db.WithContext(ctx).
		Select("id", "egress").
		Where("id = ANY (?::text[]) AND egress IS NOT NULL", idArray(ids)).
		Find(&list).
		Error
	found := map[string]json.RawMessage{}
	for _, b := range list {
		found[b.ID] = b.Egress
	}
	return found, err
}

// SetEgress changes a sandbox's policy if the attempt still owns the job.
func (s *Store) SetEgress(ctx context.Context, j Job, policy json.RawMessage) error {
	_, err := s.begin(ctx, j, nil, func(tx *gorm.DB, box *Sandbox) error {
		if box.Ended() {
			return box.EndedError()
		}
		box.Egress = policy
		return tx.Model(box).Select("egress").Updates(box).Error
	})
	return err
}

// Networked returns the sandboxes that a node holds and that may connect to somewhere, with their policies.
func (s *Store) Networked(ctx context.Context, node string) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Select("id", "tenant_id", "state", "egress").
		Where("node_id = ? AND ended_at IS NULL AND egress IS NOT NULL", node).Order("id"))
}

// AddEgressUse adds what sandboxes have used since the last report. Those that are not there any more are left out.
func (s *Store) AddEgressUse(ctx context.Context, used []EgressUse) error {
	var denials []EgressDenial
	for _, u := range used {
		denials = append(denials, u.Denials...)
	}
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		err := tx.Exec(`INSERT INTO egress_usage AS u (sandbox_id, connections, denied, sent, received)
			SELECT r.* FROM jsonb_to_recordset(?::jsonb)
				AS r("SandboxID" text, "Connections" bigint, "Denied" bigint, "Sent" bigint, "Received" bigint)
			WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = r."SandboxID") ORDER BY 1
			ON CONFLICT (sandbox_id) DO UPDATE SET connections = u.connections + excluded.connections,
				denied = u.denied + excluded.denied, sent = u.sent + excluded.sent,
				received = u.received + excluded.received, updated_at = now()`,
			string(must(json.Marshal(used)))).Error
		if err != nil || len(denials) == 0 {
			return err
		}
		return addDenials(tx, denials)
	})
}

// addDenials keeps only so many of one sandbox: hostile code can think of any number of destinations.
func addDenials(tx *gorm.DB, denials []EgressDenial) error {
	return tx.Exec(`INSERT INTO egress_denials AS d (sandbox_id, target, reason, count, first_at, last_at)
		SELECT r.* FROM jsonb_to_recordset(?::jsonb) AS r("SandboxID" text, "Target" text, "Reason" text, "Count" bigint,
			"FirstAt" timestamptz, "LastAt" timestamptz)
		WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = r."SandboxID")
			AND (EXISTS (SELECT 1 FROM egress_denials k WHERE k.sandbox_id = r."SandboxID" AND k.target = r."Target" AND k.reason = r."Reason")
				OR (SELECT count(*) FROM egress_denials k WHERE k.sandbox_id = r."SandboxID") < ?)
		ORDER BY 1, 2, 3
		ON CONFLICT (sandbox_id, target, reason) DO UPDATE SET count = d.count + excluded.count,
			first_at = least(d.first_at, excluded.first_at), last_at = greatest(d.last_at, excluded.last_at)`,
		string(must(json.Marshal(denials))), maxDenials).Error
}

// EgressUse returns what a sandbox has used, with its denials, the newest first.
func (s *Store) EgressUse(ctx context.Context, sandboxID string) (EgressUse, error) {
	u := EgressUse{SandboxID: sandboxID}
	db := s.db.WithContext(ctx)
	if err := db.Table("egress_usage").Where("sandbox_id = ?", sandboxID).Limit(1).Scan(&u).Error; err != nil {
		return u, err
	}
	err := db.Table("egress_denials").
		Where("sandbox_id = ?", sandboxID).
		Order("last_at DESC, target, reason").
		Scan(&u.Denials).
		Error
	return u, err
}
