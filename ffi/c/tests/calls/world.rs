//! The handles that a program holds.

use std::ffi::{CStr, c_int};
use std::mem::zeroed;
use std::ptr::null_mut;

use warpline_c::byte_stream::*;
use warpline_c::cm::channel::*;
use warpline_c::cm::id::*;
use warpline_c::completion::*;
use warpline_c::connection::*;
use warpline_c::device::*;
use warpline_c::error::warpline_last_error;
use warpline_c::memory::*;
use warpline_c::queue_pair::*;
use warpline_c::stream::*;
use warpline_c::window::*;
use warpline_c::work::*;

use super::Reached;
use super::input::Input;

/// Milliseconds that what must come about may take: it does, unless something is wrong.
const PATIENCE: i32 = 30_000;
const FAR: &CStr = c"198.18.0.2";
/// No other call names it.
const SETUP_PORT: u16 = 5000;

/// At most as many of a kind.
const MOST: usize = 8;

/// The handles of one kind.
pub struct Handles<T>(Vec<*mut T>, unsafe extern "C" fn(*mut T));

impl<T> Handles<T> {
    fn new(give_back: unsafe extern "C" fn(*mut T)) -> Self {
        Self(Vec::new(), give_back)
    }

    /// Returns one of them; null if there is none, and for one of sixteen.
    pub fn any(&self, input: &mut Input<'_>) -> *mut T {
        let choice = input.octet();
        if self.0.is_empty() || choice & 15 == 15 {
            return null_mut();
        }
        self.0[usize::from(choice) % self.0.len()]
    }

    /// Returns the one made last; null if there is none.
    pub fn newest(&self) -> *mut T {
        self.0.last().copied().unwrap_or(null_mut())
    }

    /// Takes one of them out: the call takes it back.
    pub fn take(&mut self, input: &mut Input<'_>) -> *mut T {
        let handle = self.any(input);
        self.0.retain(|held| *held != handle);
        handle
    }

    /// Adds what a call has made. Where there are enough, the oldest goes.
    pub fn add(&mut self, handle: *mut T) {
        if handle.is_null() {
            return;
        }
        if self.0.len() == MOST {
            let oldest = self.0.remove(0);
            // SAFETY: it is nobody else's.
            unsafe { (self.1)(oldest) };
        }
        self.0.push(handle);
    }

    /// Gives one back; null at times.
    pub fn give_back(&mut self, input: &mut Input<'_>) {
        let handle = self.take(input);
        // SAFETY: it is nobody's any more, or null.
        unsafe { (self.1)(handle) };
    }
}

impl<T> Drop for Handles<T> {
    fn drop(&mut self) {
        for handle in self.0.drain(..) {
            // SAFETY: it is nobody else's.
            unsafe { (self.1)(handle) };
        }
    }
}

/// A handle that another thread uses at the same time, as the header allows.
pub struct Shared<T>(pub *mut T);

// SAFETY: any thread may use any handle: the header.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// The handle; a method, so that a closure takes all of this.
    pub const fn get(&self) -> *mut T {
        self.0
    }
}

/// Requests have no call that gives them back: they are rejected.
unsafe extern "C" fn reject(request: *mut Request) {
    // SAFETY: it is good, or null.
    unsafe { warpline_reject(request, null_mut(), 0) };
}

/// Everything that the program holds, in an order of giving back that is none in particular.
pub struct World {
    pub devices: Handles<Device>,
    pub pds: Handles<Pd>,
    pub cqs: Handles<Cq>,
    pub mrs: Handles<Mr>,
    pub mws: Handles<Mw>,
    pub qps: Handles<Qp>,
    pub srqs: Handles<Srq>,
    pub listeners: Handles<Listener>,
    pub requests: Handles<Request>,
    pub streams: Handles<Stream>,
    pub stream_listeners: Handles<StreamListener>,
    pub byte_streams: Handles<ByteStream>,
    pub channels: Handles<CmChannel>,
    pub ids: Handles<CmId>,
    /// The last grant that a call has written.
    pub grant: Grant,
    /// Of memory that was registered.
    pub stags: Vec<(u32, u64)>,
    reached: Reached,
}

pub const NAMES: [&CStr; 2] =
    [c"ring,mtu=9000,address=198.18.0.1/24", c"ring,mtu=9000,address=198.18.0.2/24"];

impl World {
    /// Two devices, each with what a connection needs.
    pub fn new() -> Self {
        let mut world = Self {
            devices: Handles::new(warpline_device_close),
            pds: Handles::new(warpline_pd_destroy),
            cqs: Handles::new(warpline_cq_destroy),
            mrs: Handles::new(warpline_mr_destroy),
            mws: Handles::new(warpline_mw_destroy),
            qps: Handles::new(warpline_qp_destroy),
            srqs: Handles::new(warpline_srq_destroy),
            listeners: Handles::new(warpline_listener_destroy),
            requests: Handles::new(reject),
            streams: Handles::new(warpline_stream_destroy),
            stream_listeners: Handles::new(warpline_stream_listener_destroy),
            byte_streams: Handles::new(warpline_byte_stream_destroy),
            channels: Handles::new(warpline_cm_channel_destroy),
            ids: Handles::new(warpline_cm_destroy_id),
            grant: Grant::default(),
            stags: Vec::new(),
            reached: Reached::default(),
        };
        let mut devices = [null_mut(); 2];
        let [near, far] = &mut devices;
        let [near_name, far_name] = NAMES.map(CStr::as_ptr);
        // SAFETY: the names are good, null is the defaults, and the places may be written.
        let opened =
            unsafe { warpline_device_open_pair(near_name, null_mut(), far_name, null_mut(), near, far) };
        assert_eq!(opened, 0, "two devices");
        for device in devices {
            world.devices.add(device);
            let (mut pd, mut cq, mut qp, mut mr) = (null_mut(), null_mut(), null_mut(), null_mut());
            // SAFETY: the handles are good, and the places may be written.
            unsafe {
                assert_eq!(warpline_pd_create(device, &raw mut pd), 0);
                assert_eq!(warpline_cq_create(64, true, &raw mut cq), 0);
                assert_eq!(warpline_qp_create(pd, cq, cq, null_mut(), null_mut(), &raw mut qp), 0);
                assert_eq!(warpline_mr_allocate(pd, null_mut(), 4096, 15, &raw mut mr), 0);
                world.stags.push((warpline_mr_stag(mr), warpline_mr_address(mr) as u64));
            }
            world.pds.add(pd);
            world.cqs.add(cq);
            world.qps.add(qp);
            world.mrs.add(mr);
        }
        world.connect(devices);
        world.open_streams(devices);
        world
    }

    /// Connects the two queue pairs, and sends from one to the other.
    fn connect(&mut self, [_, far]: [*mut Device; 2]) {
        let (mut listener, mut request) = (null_mut(), null_mut());
        let [near_qp, far_qp] = [self.qps.0[0], self.qps.0[1]];
        let connecting = Shared(near_qp);
        // SAFETY: the handles are good, null is the defaults, and the places may be written.
        unsafe {
            assert_eq!(warpline_listen(far, SETUP_PORT, null_mut(), &raw mut listener), 0);
            let thread = std::thread::spawn(move || {
                warpline_connect(connecting.get(), FAR.as_ptr(), SETUP_PORT, null_mut(), null_mut())
            });
            assert_eq!(warpline_get_request(listener, PATIENCE, &raw mut request), 0);
            self.record("accept", warpline_accept(request, far_qp, null_mut()));
            self.record("connect", thread.join().unwrap());
        }
        self.listeners.add(listener);
        let [near_sge, far_sge] = [0, 1].map(|end| {
            let (stag, addr): (u32, u64) = self.stags[end];
            Sge { addr, length: 64, stag }
        });
        // SAFETY: zeros are a request.
        let (mut send, mut receive): (SendWr, RecvWr) = unsafe { (zeroed(), zeroed()) };
        (send.size, receive.size) = (size_of::<SendWr>(), size_of::<RecvWr>());
        (send.num_sge, receive.num_sge) = (1, 1);
        (send.sg_list, receive.sg_list) = (&raw const near_sge, &raw const far_sge);
        (send.opcode, send.flags) = (WARPLINE_WR_SEND, WARPLINE_SEND_SIGNALED);
        let mut completion = Wc::default();
        // SAFETY: the handles and the requests are good, and the place may be written.
        unsafe {
            self.record("post-recv", warpline_post_recv(far_qp, &raw const receive, null_mut()));
            self.record("post-send", warpline_post_send(near_qp, &raw const send, null_mut()));
            for cq in [self.cqs.0[0], self.cqs.0[1]] {
                assert_eq!(warpline_cq_wait(cq, &raw mut completion, PATIENCE), 1);
                self.completed(&completion);
            }
        }
    }

    /// Opens a connection in streaming mode, and one for a byte stream with the option.
    fn open_streams(&mut self, [near, far]: [*mut Device; 2]) {
        // SAFETY: zeros are its defaults.
        let mut attr: StreamAttr = unsafe { zeroed() };
        (attr.size, attr.rdma_option) = (size_of::<StreamAttr>(), 1);
        let (attr, port, mut listener) = (&raw const attr, SETUP_PORT + 1, null_mut());
        // SAFETY: the handles and attributes are good, and the places may be written.
        unsafe {
            let result = warpline_stream_listen_with(far, port, attr, &raw mut listener);
            self.made("stream-listen", result, listener);
            for is_byte_stream in [false, true] {
                let (mut one, mut other) = (null_mut(), null_mut());
                let result = warpline_stream_open(near, FAR.as_ptr(), port, attr, &raw mut one);
                self.made("stream-open", result, one);
                let result = warpline_stream_accept(listener, PATIENCE, &raw mut other);
                self.made("stream-accept", result, other);
                for stream in [one, other] {
                    if is_byte_stream {
                        let mut made = null_mut();
                        let result = warpline_byte_stream_create(stream, null_mut(), &raw mut made);
                        let made = self.made("byte-stream-create", result, made);
                        self.byte_streams.add(made);
                    } else {
                        self.streams.add(stream);
                    }
                }
            }
        }
        self.stream_listeners.add(listener);
    }

    /// Notes the result of a call of a family; a failure is explained, and is none of the library's own.
    pub fn record(&mut self, family: &'static str, result: c_int) {
        assert_ne!(result, -libc::ENOTRECOVERABLE, "{family}: {}", last_error());
        *self.reached.results.entry(result.min(0)).or_default() += 1;
        if result >= 0 {
            *self.reached.successes.entry(family).or_default() += 1;
        } else {
            assert!((-133..0).contains(&result), "{family}: {result} is no number of errno.h");
            assert!(!last_error().is_empty(), "{family}: {result} without words");
        }
    }

    /// Notes the results of calls of a family.
    pub fn record_all(&mut self, family: &'static str, results: impl IntoIterator<Item = c_int>) {
        for result in results {
            self.record(family, result);
        }
    }

    /// Notes the result of a call that makes a handle: it has made one if it says so, and else none.
    pub fn made<T>(&mut self, family: &'static str, result: c_int, handle: *mut T) -> *mut T {
        self.record(family, result);
        assert_eq!(result == 0, !handle.is_null(), "{family}: {result}");
        handle
    }

    pub fn completed(&mut self, completion: &Wc) {
        *self.reached.completions.entry(completion.status).or_default() += 1;
    }

    pub fn reached(mut self) -> Reached {
        std::mem::take(&mut self.reached)
    }
}

impl Drop for World {
    /// Resets what is open, which a device that goes would wait for.
    fn drop(&mut self) {
        // SAFETY: the handles are good.
        unsafe {
            self.streams.0.iter().for_each(|stream| _ = warpline_stream_abort(*stream));
            self.byte_streams.0.iter().for_each(|stream| _ = warpline_byte_stream_abort(*stream));
        }
    }
}

fn last_error() -> String {
    // SAFETY: it is never null, and good until the next call of this thread.
    unsafe { CStr::from_ptr(warpline_last_error()) }.to_str().unwrap().into()
}
