//go:build attack

package attack

// attacks are played in this order.
func attacks() []attack {
	return []attack{
		{name: "ids", finding: "ids of no valid form reach PostgreSQL, or stop other tenants' submissions", play: malformedIDs},
		{name: "many-ids", finding: "millions of ids in one field keep the only committer busy", play: manyIDs},
		{name: "foreign-ids", finding: "another tenant's things are shown or changed by their ids", play: foreignIDs},
		{name: "traversal", finding: "an image's name leads the engine to containers' secrets and to other servers", play: traversal},
		{name: "foreign-images", finding: "every image of the engine is everybody's, by the beginning of its id", play: foreignImages},
		{name: "bombs", finding: "a body that unpacks to gigabytes takes the API's memory", play: bombs},
		{name: "wrong-bodies", finding: "errors about a body take more memory than the body, without a limit", play: wrongBodies},
		{name: "crowds", finding: "bodies at once take the API's memory", play: crowds},
		{name: "slow-bodies", finding: "one tenant's unfinished bodies take the room of everybody's", play: slowBodies},
		{name: "large-answers", finding: "an answer takes many times its size of the API's memory", play: largeAnswers},
		{name: "large-rows", finding: "small requests load gigabytes of rows", play: largeRows},
		{name: "waits", finding: "one tenant may hold any number of requests that wait", play: waits},
		{name: "strangers", finding: "requests without a valid key cost a query each", play: strangers},
		{name: "poison", finding: "a label that fits no index stops usage and retention for everybody", play: poison},
		{name: "sleepers", finding: "commands that wait hold all slots; deletes, timeouts and pauses wait for them", play: sleepers},
		{name: "backlogs", finding: "the end of a long queue stops all submissions", play: backlogs},
		{name: "locked-rows", finding: "one locked row stops all submissions", play: lockedRows},
		{name: "hung-redis", finding: "a Redis that hangs holds up requests for its timeout", play: hungRedis},
		{name: "retries", finding: "retries pass the queue's limit and copy what was sent", play: retries},
		{name: "stored", finding: "one tenant may store any number of bytes in PostgreSQL", play: stored},
		{name: "greedy", finding: "sandboxes may have more memory and processes than the machine has", play: greedy},
		{name: "full-disk", finding: "builds write past their limit to the host's disk", play: fullDisk},
		{name: "work-dirs", finding: "the engine enters a directory of the tenant's choice as the host's root", play: workDirs},
		{name: "leftovers", finding: "what a build step has started lives on", play: leftovers},
		{name: "descriptors", finding: "one sandbox keeps the guests of all others from starting commands", play: descriptors},
		{name: "sockets", finding: "one sandbox takes the descriptors in sockets of all programs", play: sockets, open: byUser},
		{name: "watchers", finding: "one sandbox takes the inotify instances of all", play: watchers, open: byUser},
		{name: "signals", finding: "a program ends its sandbox's guest by a queued signal", play: signals},
		{name: "deep-trees", finding: "deep trees cannot be removed", play: deepTrees},
		{name: "hooks", finding: "callbacks reach the inside or tell what is there", play: hooks},
		{name: "inwards", finding: "a sandbox reaches the inside or is told what is there", play: inwards},
		{name: "times", finding: "a time beyond the calendar is a panic", play: times},
		{name: "smuggled", finding: "a request is hidden in another one's body", play: smuggled},
		{name: "lies", finding: "a sandbox's server deceives the edge", play: lies},
		{name: "early-waits", finding: "a command that was accepted is said not to exist", play: earlyWaits},
	}
}

// byUser is why an attack on a budget of the kernel succeeds.
const byUser = "the kernel counts it by user, and the sandboxes of a machine have one; a runtime with a kernel of its own (runsc) counts for itself"
