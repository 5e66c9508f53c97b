// Package e2b runs E2B's own clients, npm e2b and PyPI e2b, against a whole installation: PostgreSQL, Redis, API,
// edge, worker, scheduler and sandboxes on the Docker engine. The suites are js/suite.mjs and python/suite.py. The official
// Python client of the Model Context Protocol drives the agents' tools in python/tools.py.
//
// The test has the build tag e2b, because it needs Node, Python and the clients: make e2b sees to them.
package e2b
