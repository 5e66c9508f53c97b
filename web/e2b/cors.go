package e2b

import (
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/cors"
)

// preflightSeconds is how long a browser may remember what it was allowed, in seconds.
const preflightSeconds = 7200

// allowPages lets pages of any origin call E2B's routes, as E2B's own servers do: their clients run in browsers, too.
// What opens these routes is a key in a header, which a page has or has not; what a browser adds by itself opens none
// of them, and is never allowed. A browser asks before it sends the key, and is to see every refusal, so this comes
// first.
func allowPages() fiber.Handler {
	return cors.New(cors.Config{
		AllowOrigins: "*", AllowMethods: "GET, HEAD, POST, PUT, PATCH, DELETE", AllowHeaders: "*, Authorization",
		ExposeHeaders: "*",
		MaxAge:        preflightSeconds,
	})
}
