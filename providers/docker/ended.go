package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/client"

	"sandyard/providers"
)

// Exit codes of first processes that did not choose them: one that was killed, and one of which the engine knows nothing
// because it was away.
const (
	codeKilled  = 137
	codeUnknown = 255
)

const (
	// rememberedEvents is how many events an engine keeps in its memory, which is empty when it starts.
	rememberedEvents = 256
	// oomLead is how long before a container's end its lack of memory is told, if that is why.
	oomLead = 3 * time.Second
	// dieLag is how long after a container's end a busy engine may tell of it.
	dieLag = 2 * time.Second
	// rememberPause is the time between two questions what an engine remembers.
	rememberPause = 100 * time.Millisecond
	// clockSlack is how far what an engine says of one moment in two places may be apart.
	clockSlack = time.Second
)

// ending is how a container has ended, as its engine has written it down.
type ending struct {
	ref  string
	code int
	oom  bool // at its end, or some time before; a busy engine may forget that
	at   time.Time
	// removed says that somebody removes it, or has done so.
	removed bool
}

func endingOf(c container.InspectResponse) ending {
	at, _ := time.Parse(time.RFC3339Nano, c.State.FinishedAt)
	return ending{ref: c.ID, code: c.State.ExitCode, oom: c.State.OOMKilled, at: at, removed: statusOf(c.State.Status) == statusRemoving}
}

// memories is what an engine remembers of the containers' lives, by their ids.
type memories struct {
	since                 time.Time // zero = of all that happened since it was started
	until                 time.Time
	started, killed, ooms map[string]time.Time
	died                  map[string]time.Time
	live                  bool // containers outlive a restart
}

// remember asks the engine what it remembers.
func remember(ctx context.Context, api *client.Client) (memories, error) {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	info, err := api.Info(ctx)
	if err != nil {
		return memories{}, err
	}
	m := memories{started: map[string]time.Time{}, killed: map[string]time.Time{}, ooms: map[string]time.Time{}, died: map[string]time.Time{}, live: info.LiveRestoreEnabled}
	now, err := time.Parse(time.RFC3339Nano, info.SystemTime)
	if err != nil {
		return memories{}, err
	}
	m.until = now
	told, failed := api.Events(ctx, events.ListOptions{Since: "0", Until: fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())})
	n, first := 0, time.Time{}
	for {
		select {
		case e := <-told:
			if n++; n == 1 {
				first = time.Unix(0, e.TimeNano)
			}
			m.note(e)
		case err := <-failed:
			if n >= rememberedEvents {
				m.since = first
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return m, err
		}
	}
}

func (m memories) note(e events.Message) {
	if e.Type != events.ContainerEventType {
		return
	}
	for action, times := range map[events.Action]map[string]time.Time{
		events.ActionStart: m.started, events.ActionKill: m.killed, events.ActionOOM: m.ooms, events.ActionDie: m.died,
	} {
		if e.Action == action {
			times[e.Actor.ID] = time.Unix(0, e.TimeNano)
		}
	}
}

// why says what has ended a container. Empty = nobody knows.
func (m memories) why(e ending) string {
	_, started := m.started[e.ref]
	_, killed := m.killed[e.ref]
	_, died := m.died[e.ref]
	oomAt, toldOOM := m.ooms[e.ref]
	switch {
	case e.removed:
		return providers.EndedByRemoval
	case e.code != codeKilled && e.code != codeUnknown:
		return providers.EndedByItself(e.code)
	case died && !started && !m.live && m.since.IsZero(): // the engine found it when it started, and ended it
		return providers.EndedByEngine
	case died && (toldOOM && e.at.Sub(oomAt) < oomLead || e.oom && !toldOOM && !killed):
		return providers.EndedByMemory
	case died:
		return providers.EndedByKill
	case e.code == codeUnknown, m.since.Before(e.at.Add(-clockSlack)): // an engine that had seen the end would remember it
		return providers.EndedByEngine
	case e.oom:
		return providers.EndedByMemory
	default:
		return ""
	}
}

// early says whether a container was killed so lately that the engine may not have told of it yet.
func (m memories) early(e ending) bool {
	_, died := m.died[e.ref]
	return !died && !e.removed && e.code == codeKilled && m.until.Sub(e.at).Abs() < dieLag
}

// explain says why some containers have ended, as far as that can be found out.
func (p *Provider) explain(ctx context.Context, ended []ending) map[string]string {
	if len(ended) == 0 {
		return nil
	}
	m, err := remember(ctx, p.api)
	for err == nil && slices.ContainsFunc(ended, m.early) {
		select {
		case <-time.After(rememberPause):
			m, err = remember(ctx, p.api)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		p.cfg.Logger.DebugContext(ctx, "the engine's memory is not known", "error", err)
		return nil
	}
	look := sync.OnceValue(func() func(ending) string { return p.lookAgain(ctx) })
	reasons := make(map[string]string, len(ended))
	for _, e := range ended {
		why := m.why(e)
		if _, ours := p.silent.Load(e.ref); ours {
			why = providers.EndedForSilence
		} else if why == providers.EndedByKill {
			why = look()(e)
		}
		reasons[e.ref] = why
	}
	return reasons
}

// lookAgain is for what seems killed. An engine that ends kills its containers, and takes no new connections before it does;
// over old ones it answers until it is gone.
func (p *Provider) lookAgain(ctx context.Context) func(ending) string {
	fresh, err := connect(ctx, p.cfg.Host)
	if err != nil {
		if ctx.Err() != nil {
			return func(ending) string { return "" }
		}
		return func(ending) string { return providers.EndedByEngine }
	}
	defer fresh.Close()
	m, err := remember(ctx, fresh)
	if err != nil {
		return func(ending) string { return "" }
	}
	return m.why
}
