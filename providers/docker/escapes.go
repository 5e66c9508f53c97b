package docker

// escape is a known way out of a container, and the first versions of a component without it, one of each line of releases.
// Lines that are older than all of these have it, newer ones have not.
type escape struct {
	cve       string
	component string
	fixed     []string
	// backports are versions of distributions that have the fix although their number is older. Each stands for the later
	// revisions of the same line, too: what follows the last letter is compared as a number.
	backports []string
}

// escapes is the table of what an engine must be newer than.
func escapes() []escape {
	return []escape{
		{cve: "CVE-2018-15664", component: "Engine", fixed: []string{"18.9.7"}}, // docker cp follows links into the machine
		{cve: "CVE-2019-14271", component: "Engine", fixed: []string{"19.3.1"}}, // docker cp runs code of the container
		{cve: "CVE-2019-5736", component: "runc", fixed: []string{"1.0.0"}},     // the runtime's own program is overwritten
		{cve: "CVE-2021-30465", component: "runc", fixed: []string{"1.0.0"}},    // links change while a start mounts
		{cve: "CVE-2024-21626", component: "runc", fixed: []string{"1.1.12"}, // a work directory below /proc/self/fd
			backports: []string{"1.1.5+ds1-1+deb12u1"}},
		{cve: "CVE-2025-31133", component: "runc", fixed: []string{"1.2.8", "1.3.3"}}, // masked paths
		{cve: "CVE-2025-52565", component: "runc", fixed: []string{"1.2.8", "1.3.3"}}, // /dev/console
		{cve: "CVE-2025-52881", component: "runc", fixed: []string{"1.2.8", "1.3.3"}}, // writes to /proc are led elsewhere
	}
}
