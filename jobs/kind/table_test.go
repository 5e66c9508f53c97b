package kind

import (
	"errors"
	"testing"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

func TestRowsOfTheTable(t *testing.T) {
	t.Parallel()
	for name, k := range kinds() {
		a := k.Args()
		if a.Kind() != name {
			t.Errorf("the row %s makes arguments of the kind %s", name, a.Kind())
		}
		if _, own := a.(timed); own == (k.Timeout > 0) {
			t.Errorf("%s: the timeout stands with the arguments (%v) and in the table (%v): one of them has to", name, own, k.Timeout)
		}
		stored := models.Job{Kind: name, Args: []byte("{}")}
		if again, err := FromJob(stored); err != nil || again.Kind() != name {
			t.Errorf("a stored %s is read as %v: %v", name, again, err)
		}
		if _, err := Decode(name, nil); (err != nil) != k.Internal {
			t.Errorf("%s from a request: %v", name, err)
		}
	}
	if _, err := FromJob(models.Job{Kind: "write-all"}); err == nil {
		t.Error("a stored job of an unknown kind is read")
	}
	if old, err := FromJob(models.Job{Kind: "write-many", Args: []byte("{}")}); err != nil || old.Kind() != "write_many" {
		t.Errorf("a job of the version before is read as %v: %v", old, err)
	}
	var invalid *InvalidError
	if _, err := Decode("stat", []byte(`{"path":"a","depth":1}`)); !errors.As(err, &invalid) || invalid.Field != "args" {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestTimeOfAJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args Args
		want time.Duration
	}{
		{&Exec{}, 5 * time.Minute},
		{&Exec{TimeoutSeconds: 7}, 7 * time.Second},
		{&Exec{Background: true, TimeoutSeconds: 7}, time.Minute}, // the job only starts it
		{&ExecWait{TimeoutSeconds: 9}, 9 * time.Second},
		{&Code{}, 5 * time.Minute},
		{&Create{ReadySeconds: 30}, 150 * time.Second},
		{&Build{TimeoutSeconds: 600}, 10 * time.Minute},
		{&CreateContext{}, 2 * time.Minute},
		{&Delete{}, time.Minute},
		{&Stat{}, time.Minute},
	} {
		if got, err := TimeoutOf(c.args); err != nil || got != c.want {
			t.Errorf("%s %+v may run for %v, want %v: %v", c.args.Kind(), c.args, got, c.want, err)
		}
	}
	if _, err := TimeoutOf(&Exec{TimeoutSeconds: 100_000}); err == nil {
		t.Error("an exec may run for more than a day")
	}
	if AttemptsOf(&Delete{}) <= AttemptsOf(&Stat{}) {
		t.Error("a delete gives up as early as other jobs")
	}
}

// TestWhatAProviderLacks: a provider that supports nothing is asked for nothing, and one that supports all for all.
func TestWhatAProviderLacks(t *testing.T) {
	t.Parallel()
	none := providers.Capabilities{
		Pause: providers.Unsupported, Background: providers.Unsupported, Code: providers.Unsupported, Stdin: providers.Unsupported,
		Ports: providers.Unsupported, Processes: providers.Unsupported, Network: providers.Unsupported,
	}
	for _, c := range []struct {
		args Args
		want string
	}{
		{&Exec{}, ""},
		{&Stat{}, ""},
		{&Delete{}, ""},
		{&Exec{Background: true}, "background execs"},
		{&Exec{Stdin: "x"}, "standard input"},
		{&ExecStdin{}, "background execs"},
		{&Pause{}, "pausing"},
		{&Resume{}, "pausing"},
		{&Code{}, "code contexts"},
		{&Port{}, "ports"},
		{&SignalProcess{}, "lists of processes"},
		{&SetEgress{}, "changing the egress policy of a running sandbox"},
	} {
		if got := Lacks(none, c.args); got != c.want {
			t.Errorf("%s lacks %q, want %q", c.args.Kind(), got, c.want)
		}
		if got := Lacks(providers.Capabilities{}, c.args); got != "" {
			t.Errorf("%s lacks %q though all is supported", c.args.Kind(), got)
		}
	}
	if Lacks(providers.Capabilities{Network: providers.Native}, &SetEgress{}) == "" {
		t.Error("a network that is open as a whole or not at all can change its policy")
	}
}
