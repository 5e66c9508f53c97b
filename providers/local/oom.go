package local

import (
	"os"

	"golang.org/x/sys/unix"

	"sandyard/providers/confine"
)

// The files of a process's score when memory runs out, by their names of today and of old.
const (
	scoreFile    = "proc/self/oom_score_adj"
	oldScoreFile = "proc/self/oom_adj"
)

// setOOMFloor makes confine.OOMFloor the least score that this process and all below it may give themselves, and its own
// one 0 all the same. The kernel takes what CAP_SYS_RESOURCE writes for the floor, but not under the file's old name.
func (s *start) setOOMFloor() {
	if !mayFloor() {
		return
	}
	s.writeFile(scoreFile, confine.OOMFloor)
	s.writeFile(oldScoreFile, "0")
}

// mayFloor says whether the processes that we start can do that.
func mayFloor() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil || sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return false
	}
	_, err := os.Stat("/" + oldScoreFile)
	return err == nil
}
