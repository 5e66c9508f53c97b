package pool

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/providers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRefillRestsAfterACreate, as long as the pool has a member.
func TestRefillRestsAfterACreate(t *testing.T) {
	t.Parallel()
	p := New(Config{Size: 1}, func(s providers.Spec) string { return s.Image })
	class := providers.PoolClass{Min: 1, Spec: providers.Spec{Image: "a"}}
	p.Restock([]providers.PoolClass{class}, providers.AnyRoom())
	p.ended = time.Now().Add(time.Hour)
	if _, lacking := p.Lacking(); !lacking {
		t.Error("no member is to be made right after a create, though there is none")
	}
	if !p.Put(&Member{Key: "a"}) {
		t.Fatal("the pool takes no member")
	}
	class.Min = 2
	p.Restock([]providers.PoolClass{class}, providers.AnyRoom())
	if _, lacking := p.Lacking(); lacking {
		t.Error("a member is to be made right after a create, though there is one")
	}
	p.ended = time.Time{}
	if _, lacking := p.Lacking(); !lacking {
		t.Error("no member is to be made long after a create, though two are wanted")
	}
}

// TestNothingIsRefilledBesideACreate, and the refiller is woken when the last one has ended.
func TestNothingIsRefilledBesideACreate(t *testing.T) {
	t.Parallel()
	p := New(Config{Size: 1}, func(s providers.Spec) string { return s.Image })
	end := p.Begin()
	p.Stock(providers.PoolClass{Min: 1, Spec: providers.Spec{Image: "a"}})
	<-p.Woken()
	if _, lacking := p.Lacking(); lacking {
		t.Error("a member is to be made beside a create")
	}
	end()
	<-p.Woken()
	if _, lacking := p.Lacking(); !lacking {
		t.Error("no member is to be made after a create")
	}
}
