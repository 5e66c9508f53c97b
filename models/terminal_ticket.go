package models

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"gorm.io/gorm"
)

// TerminalTicket opens one terminal, once, for somebody who cannot send an API key. Only its hash is stored.
type TerminalTicket struct {
	Hash      []byte `gorm:"primaryKey"`
	TenantID  string
	KeyID     string // of the API key, or the login, that asked for it; a ticket does not outlive it
	SandboxID string
	Terminal  string
	Origin    string    // of the page that may use it; empty = one of this server's own, or none
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
	ExpiresAt time.Time
	UsedAt    *time.Time
}

// Why a ticket does not let in.
var (
	ErrTicketUsed    = errors.New("the ticket was already used")
	ErrTicketExpired = errors.New("the ticket has expired")
	ErrTicketForeign = errors.New("the ticket is for another sandbox or terminal")
	ErrTicketOrigin  = errors.New("the ticket is for another origin")
)

const (
	ticketPrefix = "tkt_"
	// maxTickets bounds the tickets of one sandbox that could still be used.
	maxTickets = 100
)

// IssueTicket writes a ticket down that holds for life, and returns its plain text, which is not kept. Too many for
// one sandbox are a *LimitError.
func (s *Store) IssueTicket(
	ctx context.Context,
	t TerminalTicket,
	life time.Duration,
) (plain string, issued TerminalTicket, err error) {
	plain = ticketPrefix + strings.ToLower(rand.Text()+rand.Text())
	t.Hash = hashKey(plain)
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		if _, err := locked(tx, t.SandboxID, lockSandbox); err != nil { // so that no two count at once
			return err
		}
		var open int64
		err := tx.Model(&TerminalTicket{}).
			Where("sandbox_id = ? AND used_at IS NULL AND expires_at > now()", t.SandboxID).
			Count(&open).
			Error
		if err != nil {
			return err
		}
		if open >= maxTickets {
			return &LimitError{Limit: "terminal_tickets", Used: float64(open), Max: maxTickets}
		}
		if err := tx.Raw("SELECT now() + ?", milliseconds(life)).Scan(&t.ExpiresAt).Error; err != nil {
			return err
		}
		return tx.Create(&t).Error
	})
	return plain, t, err
}

// TicketUse is what somebody wants to use a ticket for.
type TicketUse struct {
	Sandbox  string
	Terminal string // empty = whichever it opens
	Origin   string // of the page that asks, empty = none
	Own      bool   // it is one of this server's own, or none
}

// UseTicket uses a ticket up, if it lets in whom it comes from. Errors: ErrNotFound for none that there is, ErrRevoked
// with the key that asked for it, and those of tickets. Of many who come with one ticket one is let in.
func (s *Store) UseTicket(ctx context.Context, plain string, use TicketUse) (TerminalTicket, error) {
	var t TerminalTicket
	res := s.db.WithContext(ctx).Raw(`
		UPDATE terminal_tickets SET used_at = now() WHERE hash = @hash AND used_at IS NULL AND expires_at > now()
			AND sandbox_id = @sandbox AND (origin = '' AND @own OR origin <> '' AND origin = @origin) AND (@terminal = '' OR terminal = @terminal)
			AND (EXISTS (SELECT 1 FROM api_keys WHERE id = key_id AND revoked_at IS NULL AND `+unexpired+`)
				OR EXISTS (SELECT 1 FROM logins WHERE id = key_id AND ended_at IS NULL AND expires_at > now()))
		RETURNING *`,
		map[string]any{
			"hash":     hashKey(plain),
			"sandbox":  use.Sandbox,
			"origin":   use.Origin,
			"own":      use.Own,
			"terminal": use.Terminal,
		}).
		Scan(&t)
	if res.Error != nil || len(t.Hash) > 0 {
		return t, res.Error
	}
	return t, s.whyNot(ctx, plain, use)
}

// whyNot says why a ticket was not taken.
func (s *Store) whyNot(ctx context.Context, plain string, use TicketUse) error {
	var t struct {
		TerminalTicket

		Late bool
	}
	err := s.db.WithContext(ctx).
		Model(&TerminalTicket{}).
		Select("*, expires_at <= now() AS late").
		Where("hash = ?", hashKey(plain)).
		Take(&t).
		Error
	switch {
	case err != nil:
		return notFound(err)
	case t.SandboxID != use.Sandbox, use.Terminal != "" && t.Terminal != use.Terminal:
		return ErrTicketForeign
	case t.Origin == "" && !use.Own, t.Origin != "" && t.Origin != use.Origin:
		return ErrTicketOrigin
	case t.UsedAt != nil:
		return ErrTicketUsed
	case t.Late:
		return ErrTicketExpired
	}
	return ErrRevoked
}

// PruneTickets forgets tickets that expired longer than age ago, and says how many.
func (s *Store) PruneTickets(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "terminal_tickets", "expires_at", age, limit)
}
