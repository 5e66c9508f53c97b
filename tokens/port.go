package tokens

// Ports of every sandbox that are its own.
const (
	// GuestPort is where E2B's clients find the guest, which has tokens of its own.
	GuestPort = 49983
	// ProxyPort is where programs in a sandbox find its proxy to the outside. Nothing leads there from outside.
	ProxyPort = 49982
)
