# `make` prints the targets. Everything here is a short call of cargo or of a script in tools/.

CARGO  ?= cargo
PREFIX ?= /usr/local
PYTHON ?= python3
OUT    := $(or $(CARGO_TARGET_DIR),target)/release
KEEP   ?=
SEEDS  ?= 50000
FIRST  ?= 0
REMOVALS   ?= 10000
STRESS_DIR ?= $(or $(CARGO_TARGET_DIR),target)/tmp/stress
CYCLES ?= 10
BENCH_DIR ?= $(or $(CARGO_TARGET_DIR),target)/tmp/bench

PROGRAMS := walspool walspool-inspect
TAIL_SEEDS := $(if $(filter command% environment%,$(origin SEEDS)),$(SEEDS),100000)

.DEFAULT_GOAL := help
.PHONY: help build install demo demo-shadow crash sim damage tail fuzz test test-big test-schedules stress soak-cursors kill-wal zero-loss kill-shadow chaos-shadow lint format bench bench-store bench-wal bench-shadow servers clean distclean planted

help: ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

build: ## build the release programs
	$(CARGO) build --release -p walspool -p walspool-inspect

install: build ## install them into PREFIX/bin (PREFIX=/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(PROGRAMS:%=$(OUT)/%) $(DESTDIR)$(PREFIX)/bin

demo: ## prove the main job on real PostgreSQL (KEEP=dir leaves store, config and logs there)
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-demo
	@$(OUT)/walspool-demo $(if $(KEEP),--keep "$(KEEP)")

demo-shadow: ## a standby of catalogs, made and fed by walspool, equal to its source under DDL; under two minutes after the build
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-demo
	@$(OUT)/walspool-demo --shadow

test: ## every test, against real PostgreSQL 15 to 18, and a table of what was used
	$(PYTHON) tools/setup/run_tests.py

sim: ## crash seeds on the simulated disk (SEEDS=n, FIRST=n, RECORD=1), with the time, faults and rows they reached
	$(CARGO) run -q --profile sim -p walspool-sim -- seeds --seeds $(SEEDS) --first $(FIRST) $(if $(RECORD),--record)

damage: ## every bit of a small store flipped, and larger injuries (WALSPOOL_SEED); make test does a part
	$(CARGO) run -q --profile sim -p walspool-sim -- damage --all

tail: ## tail versus damage: SEEDS crashes with and without damage, and a table of what was taken for what
	$(CARGO) run -q --profile sim -p walspool-sim -- tail --seeds $(TAIL_SEEDS)

fuzz: ## each decoder under libFuzzer for SECONDS=60 (tests/fuzz); make test replays the corpus
	$(PYTHON) tests/fuzz/run.py --seconds $(or $(SECONDS),60)

planted: ## bugs planted on purpose, each of which crash seeds, failure loops or small worlds must find (SEEDS=n, ONLY=name, RECORD=1)
	$(CARGO) run -q --profile sim -p walspool-sim --features planted --target-dir "$(or $(CARGO_TARGET_DIR),target)/planted" -- \
	    planted --seeds $(SEEDS) $(if $(ONLY),--only $(ONLY)) $(if $(RECORD),--record)

test-big: ## the 1 GB transaction at its full size (make test runs it scaled down)
	WALSPOOL_BIG_TRANSACTION_BYTES=1073741824 $(CARGO) test --release -p walspool --test big_transaction -- --nocapture

test-schedules: ## interleavings of the store's threads (WALSPOOL_SCHEDULES=n of each scenario and way, WALSPOOL_SEED)
	$(CARGO) test --release -p walspool-concurrency --features shuttle --target-dir target/schedules --test schedules -- --nocapture --test-threads 1

stress: ## 8 readers while REMOVALS segments on each backend are removed and recycled in STRESS_DIR; result to tests/results
	$(CARGO) build --release -p walspool-concurrency
	mkdir -p tests/results "$(STRESS_DIR)"
	$(OUT)/walspool-concurrency stress "$(STRESS_DIR)" --removals $(REMOVALS) --result tests/results/stress-$(shell date +%F).json

soak-cursors: ## 8 readers in 8 processes under a saturated writer, retention on, kill -9 of any of them, for MINUTES=10 in STRESS_DIR; result to tests/results
	$(CARGO) build --release -p walspool-concurrency
	mkdir -p tests/results "$(STRESS_DIR)"
	@$(OUT)/walspool-concurrency soak "$(STRESS_DIR)" --seconds $$(( $(or $(MINUTES),10) * 60 )) --record tests/results

crash: ## real crashes on real files, as root: kill -9, file systems shut down, write caches lost; SIGBUS and EIO under mappings on ext4 and xfs (CYCLES=10; RECORD=1 keeps the results)
	$(CARGO) build --release -p walspool-crash
	@$(OUT)/walspool-crash --cycles $(CYCLES) $(if $(RECORD),--record tests/results)
	$(CARGO) build --release -p walspool-concurrency
	@$(OUT)/walspool-concurrency volumes

kill-wal: ## kill -9 of walspool at random moments while it captures WAL, then every stored byte against the source's or the filter's (CYCLES=10; PROFILE=full, catalog or both; RECORD=1)
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-physical
	@$(OUT)/walspool-physical kill-wal --cycles $(CYCLES) $(if $(PROFILE),--profile $(PROFILE)) $(if $(RECORD),--record tests/results)

zero-loss: ## the source killed and its disk gone: every commit that was acknowledged comes back from the store (CYCLES=10; RECORD=1)
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-physical
	@$(OUT)/walspool-physical zero-loss --cycles $(CYCLES) $(if $(RECORD),--record tests/results)

kill-shadow: ## kill -9 of the shadow's server at ten points around its restartpoints, then every catalog against the source's (CYCLES=10; RECORD=1)
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-physical
	@$(OUT)/walspool-physical kill-shadow --cycles $(CYCLES) $(if $(RECORD),--record tests/results)

chaos-shadow: ## kill -9 of walspool, shadow and source in random order, nobody helps, then every catalog (CYCLES=10; RECORD=1)
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-physical
	@$(OUT)/walspool-physical chaos-shadow --cycles $(CYCLES) $(if $(RECORD),--record tests/results)

lint: ## formatting, clippy without a warning, and the repository's own rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p walspool-concurrency --features shuttle --test schedules -- -D warnings
	$(PYTHON) tools/setup/tidy.py
	$(PYTHON) -B tools/setup/test_run_tests.py -q

format: ## format the source
	$(CARGO) fmt --all

bench: bench-store bench-wal bench-shadow ## every suite of measurements there is, then the criterion benches (benches/README.md)
	$(CARGO) bench -p walspool

bench-wal: ## physical capture beside pg_receivewal and an ordinary standby, six minutes; result to benches/results (QUICK=1: less of everything; PART=intake, tps or bytes; CATALOG=1: the catalog profile too, 20 minutes)
	$(CARGO) build --release -p walspool -p walspool-inspect -p walspool-bench-wal
	@$(OUT)/walspool-bench-wal $(if $(QUICK),--quick) $(if $(PART),--part $(PART)) $(if $(CATALOG),--catalog)

bench-shadow: ## standbys fed from the store beside ordinary ones, some twelve minutes; result to benches/results (QUICK=1: a look; PART=noimages, default, large, ddl, bootstrap, fed or fetch)
	$(CARGO) build --release -p walspool -p walspool-bench-shadow
	@$(OUT)/walspool-bench-shadow $(if $(QUICK),--quick) $(if $(PART),--part $(PART))

bench-store: ## the store's goals beside its peers, in BENCH_DIR, in half an hour at most; result to benches/results (QUICK=1: a look in two minutes; ROWS=2,4; PEERS=no)
	$(CARGO) build --release -p walspool -p walspool-suite
	@peers=$(if $(filter no,$(PEERS)),,$$($(PYTHON) benches/peers/build.py)) && \
	    $(OUT)/walspool-suite store --dir "$(BENCH_DIR)" $${peers:+--peers "$$peers"} $(if $(QUICK),--quick) $(if $(ROWS),--row $(ROWS))

servers: ## fetch the pinned PostgreSQL builds now (demo and tests do it by themselves)
	$(PYTHON) tools/setup/fetch_postgres.py all

clean: ## remove what was built
	$(CARGO) clean

distclean: clean ## remove the fetched servers as well
	rm -rf .servers
