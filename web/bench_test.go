package web_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"sandyard/dev/testenv"
)

// benchSandboxes is over how many sandboxes the submissions spread.
const benchSandboxes = 64

// BenchmarkSubmit measures what a client waits for the answer to POST …/exec. Nothing works the jobs off, so all but a
// tenant's window of them stay in PostgreSQL. The baselines are a Fiber route that only enqueues in Asynq with its
// defaults (nothing durable, no key, no check of the body), and one that also inserts a row with GORM per request.
// The clients share the machine with everything they measure.
func BenchmarkSubmit(b *testing.B) {
	servers := []struct {
		name  string
		start func(*testing.B) func(i int) *fasthttp.Request
	}{{"sandyard", benchSandyard}, {"asynq", benchAsynq}, {"asynq+gorm", benchAsynqGORM}}
	for _, clients := range []int{1, 16, 64} {
		for _, server := range servers {
			b.Run(fmt.Sprintf("%s/clients=%d", server.name, clients), func(b *testing.B) {
				measure(b, clients, server.start(b))
			})
		}
	}
}

func measure(b *testing.B, clients int, request func(int) *fasthttp.Request) {
	took := make([]time.Duration, b.N)
	var next, refused atomic.Int64
	var working sync.WaitGroup
	client := &fasthttp.Client{MaxConnsPerHost: clients}
	defer client.CloseIdleConnections()
	b.ResetTimer()
	for range clients {
		working.Go(func() {
			res := fasthttp.AcquireResponse()
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				req := request(int(i))
				began := time.Now()
				if err := client.Do(req, res); err != nil || res.StatusCode() != fiber.StatusAccepted {
					refused.Add(1)
				}
				took[i] = time.Since(began)
				fasthttp.ReleaseRequest(req)
			}
		})
	}
	working.Wait()
	b.StopTimer()
	if n := refused.Load(); n > 0 {
		b.Fatalf("%d of %d requests were not accepted", n, b.N)
	}
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, "p99-ms")
}

const benchBody = `{"command":"python3 main.py --input data.csv","cwd":"/workspace","env":{"MODE":"fast"},"timeout_seconds":60}`

func benchRequest(url, key string) *fasthttp.Request {
	req := fasthttp.AcquireRequest()
	req.SetRequestURI(url)
	req.Header.SetMethod(fiber.MethodPost)
	req.Header.SetContentType(fiber.MIMEApplicationJSON)
	req.Header.Set(fiber.HeaderAuthorization, "Bearer "+key)
	req.SetBodyString(benchBody)
	return req
}

func benchSandyard(b *testing.B) func(int) *fasthttp.Request {
	r := newRig(b)
	conn := must(pgx.Connect(context.Background(), r.dsn))(b)
	must(conn.Exec(context.Background(), "UPDATE tenants SET max_queued = 100000000"))(b)
	check(b, conn.Close(context.Background()))
	var urls []string
	for range benchSandboxes {
		urls = append(urls, r.url+"/v1/sandboxes/"+r.sandbox(map[string]any{})+"/exec")
	}
	return func(i int) *fasthttp.Request { return benchRequest(urls[i%len(urls)], r.key) }
}

func benchAsynq(b *testing.B) func(int) *fasthttp.Request {
	return benchBare(b, func(c *fiber.Ctx, queue *asynq.Client) error {
		return enqueue(queue, uuid.NewString(), c.Body())
	})
}

func benchAsynqGORM(b *testing.B) func(int) *fasthttp.Request {
	type task struct {
		ID, State, Args string
		CreatedAt       time.Time
	}
	db := must(gorm.Open(postgres.Open(testenv.Database(b))))(b)
	pool := must(db.DB())(b)
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(16)
	b.Cleanup(func() { pool.Close() })
	check(b, db.AutoMigrate(&task{}))
	return benchBare(b, func(c *fiber.Ctx, queue *asynq.Client) error {
		row := task{ID: uuid.NewString(), State: "queued", Args: string(c.Body())}
		if err := db.Create(&row).Error; err != nil {
			return err
		}
		return enqueue(queue, row.ID, []byte(row.ID))
	})
}

func enqueue(queue *asynq.Client, id string, payload []byte) error {
	_, err := queue.Enqueue(asynq.NewTask("exec", payload), asynq.TaskID(id))
	return err
}

func benchBare(b *testing.B, handle func(*fiber.Ctx, *asynq.Client) error) func(int) *fasthttp.Request {
	network, addr, db := testenv.Redis(b)
	rdb := redis.NewClient(&redis.Options{Network: network, Addr: addr, DB: db})
	b.Cleanup(func() { rdb.Close() })
	queue := asynq.NewClientFromRedisClient(rdb)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/exec", func(c *fiber.Ctx) error {
		if err := handle(c, queue); err != nil {
			return err
		}
		return c.Status(fiber.StatusAccepted).JSON(fiber.Map{"state": "queued"})
	})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(b)
	done := make(chan error, 1)
	go func() { done <- app.Listener(l) }()
	b.Cleanup(func() {
		check(b, app.Shutdown())
		<-done
	})
	url := "http://" + l.Addr().String() + "/exec"
	return func(int) *fasthttp.Request { return benchRequest(url, "none") }
}
