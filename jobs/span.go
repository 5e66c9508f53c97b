package jobs

import (
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// Span is how long something may last in a sandbox's life, as the operator says.
type Span struct {
	Default time.Duration // where the wish does not say; 0 = Most
	Most    time.Duration // 0 = no limit
}

// own is what holds where nobody says anything; 0 = no limit.
func (s Span) own() time.Duration {
	if s.Most > 0 && (s.Default == 0 || s.Default > s.Most) {
		return s.Most
	}
	return s.Default
}

// Fill completes the wish in milliseconds, and refuses one that is longer than the variable allows.
func (s Span) Fill(field, variable string, ms *int64) error {
	if *ms == 0 {
		*ms = s.own().Milliseconds()
	}
	if s.Most > 0 && *ms > s.Most.Milliseconds() {
		return kind.Invalid(
			field,
			"is %g, but this server allows at most %g (%s)",
			float64(*ms)/1000,
			s.Most.Seconds(),
			variable,
		)
	}
	return nil
}

// cut completes and shortens a wish that was allowed once.
func (s Span) cut(ms *int64) {
	if s.Most > 0 {
		*ms = min(*ms, s.Most.Milliseconds())
	}
	if *ms == 0 {
		*ms = s.own().Milliseconds()
	}
}

// bound makes the sandbox end as the operator wants it at the latest.
func (k Catalog) bound(box *models.Sandbox) error {
	if err := k.Lifetime.Fill("max_lifetime_seconds", "MAX_LIFETIME", &box.MaxLifetimeMS); err != nil {
		return err
	}
	return k.Paused.Fill("paused_timeout_seconds", "MAX_PAUSED_TIMEOUT", &box.PausedTimeoutMS)
}

// rebound does that with one that takes the place of an older one, which nobody wishes for anew.
func (k Catalog) rebound(box *models.Sandbox) *models.Sandbox {
	k.Lifetime.cut(&box.MaxLifetimeMS)
	k.Paused.cut(&box.PausedTimeoutMS)
	return box
}
