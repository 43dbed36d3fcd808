"""More windows than a browser has connections to a server: all are live, over one stream."""

import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE_MS, MakeLoad, OpenPage
from tests.browser.look import figure, panel
from tests.browser.stack import Service
from tests.transport.listener import Listener
from tests.waiting import wait_until

NAMES = [f"n-{number}" for number in range(7)]
STREAM = re.compile(rb"^GET /api/v1/(namespaces/[^ ]+/)?events[? ]")


class Counter:
    """A TCP proxy to the service that counts the open streams of events."""

    def __init__(self, service: Service) -> None:
        self._target = ("127.0.0.1", service.port)
        self._lock = threading.Lock()
        self.streams = 0
        self.ever = 0
        self._listener = Listener(self._serve)
        self.url = f"http://127.0.0.1:{self._listener.port}"

    def close(self) -> None:
        self._listener.close()

    def _count(self, change: int) -> None:
        with self._lock:
            self.streams += change
            self.ever += max(0, change)

    def _serve(self, client: socket.socket) -> None:
        streams = False
        try:
            with client, socket.create_connection(self._target) as server:
                while True:
                    ready, _, _ = select.select([client, server], [], [])
                    source, target = (client, server) if client in ready else (server, client)
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if source is client and not streams and STREAM.search(data):
                        streams = True
                        self._count(1)
                    target.sendall(data)
        except OSError:
            return
        finally:
            if streams:
                self._count(-1)


@contextmanager
def counted(service: Service) -> Iterator[Counter]:
    counter = Counter(service)
    try:
        yield counter
    finally:
        counter.close()


def windows(browser: Browser, counter: Counter, worker: bool) -> Iterator[list[Page]]:
    """Yield the list of all namespaces, and a window for each of seven, of one browser."""
    context = browser.new_context(base_url=counter.url)
    context.set_default_timeout(PATIENCE_MS)
    if not worker:
        context.add_init_script("delete window.SharedWorker")
    pages = []
    for path in ("/", *(f"/#/ns/{name}" for name in NAMES)):
        pages.append(context.new_page())
        pages[-1].goto(path, wait_until="commit")
    yield pages
    context.close()


def test_eight_windows_are_live_over_one_stream(
    browser: Browser, service: Service, make_load: MakeLoad
) -> None:
    loads = [make_load(name) for name in NAMES]
    with counted(service) as counter:
        for pages in windows(browser, counter, worker=True):
            for page in pages:
                expect(page.locator("#connection")).to_have_text("Live")
            wait_until(lambda: counter.streams == 1, "one stream for eight windows")
            for number, (load, page) in enumerate(zip(loads, pages[1:], strict=True)):
                load.track(number + 1)
                load.fail(1, f"torn {number}")
                expect(figure(page, "Pending")).to_have_text(str(number))
                failures = panel(page, "Recent failures").get_by_role("row")
                expect(failures.filter(has_text=f"torn {number}")).to_have_count(1)
            expect(pages[0].locator(".card")).to_have_count(7)
            # A second window of a namespace needs no other stream; one that is left needs none.
            before = counter.ever
            again = pages[0].context.new_page()
            again.goto(f"/#/ns/{NAMES[0]}")
            expect(again.locator("#connection")).to_have_text("Live")
            assert (counter.streams, counter.ever) == (1, before)
            for page in (again, *pages[2:]):
                page.close()
            pages[0].get_by_role("link", name=NAMES[3]).click()
            expect(figure(pages[0], "Pending")).to_have_text("3")
            expect(pages[0].locator("#connection")).to_have_text("Live")
            loads[3].fail(1, "torn again")
            failures = panel(pages[0], "Recent failures").get_by_role("row")
            expect(failures.filter(has_text="torn again")).to_have_count(1)
            wait_until(lambda: counter.streams == 1, "one stream for two windows")
        wait_until(lambda: counter.streams == 0, "no stream without a window")


@pytest.mark.parametrize("why", ["missing", "broken"])
def test_window_without_shared_worker_has_its_own_stream(
    service: Service, make_load: MakeLoad, open_page: OpenPage, why: str
) -> None:
    load = make_load("orders")
    with counted(service) as counter:
        page = open_page(f"{counter.url}/login")
        if why == "missing":
            page.add_init_script("delete window.SharedWorker")
        else:
            page.add_init_script("window.SharedWorker = class { constructor() { throw Error() } }")
        page.goto(f"{counter.url}/#/ns/orders")
        expect(page.locator("#connection")).to_have_text("Live")
        load.track(3)
        expect(figure(page, "Pending")).to_have_text("3")
        wait_until(lambda: counter.streams == 1, "one stream")


def test_windows_recover_when_the_service_is_back(
    service: Service, make_load: MakeLoad, open_page: OpenPage
) -> None:
    load = make_load("orders")
    with Service(service.redis_url) as own:
        page = open_page("/#/ns/orders", at=own)
        expect(page.locator("#connection")).to_have_text("Live")
        own.stop()
        expect(page.locator("#banner")).to_contain_text("The service does not answer")
        load.track(5)
        own.start()
        expect(page.locator("#connection")).to_have_text("Live")
        expect(figure(page, "Pending")).to_have_text("5")
