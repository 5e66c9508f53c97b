package docker

import (
	"strings"
	"testing"

	"github.com/docker/docker/api/types"
)

func TestVersionsWithKnownEscapesAreNamed(t *testing.T) {
	t.Parallel()
	const named21626, of2025 = "CVE-2024-21626", "CVE-2025-31133"
	for _, c := range []struct {
		engine, runc, commit string
		has, lacks           string // CVEs
	}{
		{engine: "28.5.2", runc: "1.3.3", lacks: "CVE"},
		{engine: "28.5.2", runc: "1.2.8", lacks: "CVE"},
		{engine: "29.0.0", runc: "1.4.0", lacks: "CVE"},
		{engine: "28.0.0", runc: "1.3.2", has: of2025, lacks: named21626},
		{engine: "28.0.0", runc: "1.3.3-rc.1", has: of2025, lacks: named21626},
		{engine: "28.0.0", runc: "1.2.7", has: of2025, lacks: named21626},
		{engine: "25.0.0", runc: "1.1.12", has: of2025, lacks: named21626},
		{engine: "24.0.0", runc: "1.1.11", commit: "v1.1.11-0-g4bccb38c", has: named21626},
		{engine: "20.10.24+dfsg1", runc: "1.1.5+ds1", commit: "1.1.5+ds1-1+deb12u1", has: of2025, lacks: named21626},
		{engine: "20.10.24+dfsg1", runc: "1.1.5+ds1", commit: "1.1.5+ds1-1+deb12u2", has: of2025, lacks: named21626},
		{engine: "20.10.24+dfsg1", runc: "1.1.5+ds1", commit: "1.1.5+ds1-1", has: named21626},
		{engine: "20.10.24+dfsg1", runc: "1.1.5+ds1", commit: "1.1.5+ds1-1+deb12u", has: named21626},
		{engine: "20.10.5", runc: "1.0.0~rc93+ds1", has: named21626},
		{engine: "19.03.0", runc: "1.3.3", has: "CVE-2019-14271", lacks: "runc"},
		{engine: "18.09.6", runc: "1.3.3", has: "CVE-2018-15664", lacks: "runc"},
		{engine: "unknown", runc: "1.3.3", has: "CVE-2019-14271", lacks: "runc"},
		{engine: "28.5.2", lacks: "CVE"}, // no runc
	} {
		v := types.Version{Components: []types.ComponentVersion{{Name: "Engine", Version: c.engine}}}
		if c.runc != "" {
			v.Components = append(v.Components, types.ComponentVersion{Name: "runc", Version: c.runc, Details: map[string]string{"GitCommit": c.commit}})
		}
		got := strings.Join(outdated(v), " ")
		if c.has != "" && !strings.Contains(got, c.has) || c.lacks != "" && strings.Contains(got, c.lacks) {
			t.Errorf("engine %s, runc %s %s: %s; want %q and no %q", c.engine, c.runc, c.commit, got, c.has, c.lacks)
		}
	}
}
