//! How checks are driven: any executor, through one small trait.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::Thread;

/// Something that can run a future to its end on the calling thread.
///
/// # Contract
/// `block_on` is called from many threads at once and returns when the future is finished. A subject that needs
/// an executor's timers or sockets implements this with that executor, for instance by
/// `tokio::runtime::Handle::block_on` of a multi-threaded runtime; everything else takes [`ThreadRuntime`].
pub trait Runtime: Send + Sync + 'static {
    /// Runs the future to its end.
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>);
}

/// Runs a future that has a result; none if the runtime returned before it was finished.
pub fn block_on<T>(runtime: &dyn Runtime, future: impl Future<Output = T>) -> Option<T> {
    let mut result = None;
    {
        let mut whole = pin!(async {
            result = Some(future.await);
        });
        runtime.block_on(whole.as_mut());
    }
    result
}

/// Polls on the calling thread and parks it in between: enough for subjects that need no executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadRuntime;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Runtime for ThreadRuntime {
    fn block_on(&self, mut future: Pin<&mut dyn Future<Output = ()>>) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        while future.as_mut().poll(&mut context).is_pending() {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    #[test]
    fn a_future_woken_by_another_thread_is_finished() {
        let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
        let waking = std::thread::spawn(move || receiver.recv().unwrap().wake());
        let mut polled = 0;
        let done = block_on(
            &ThreadRuntime,
            std::future::poll_fn(move |context| {
                polled += 1;
                if polled == 1 {
                    sender.send(context.waker().clone()).unwrap();
                    Poll::Pending
                } else {
                    Poll::Ready(7)
                }
            }),
        );
        waking.join().unwrap();
        assert_eq!(done, Some(7));
    }
}
